"""Launches: what overlaps shares memory, what does not fit a workgroup is refused, nothing is left behind."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from gfx950_machine import kernel

from mxfp4lab.gfx950 import EmulationError, Memory, OutOfBounds, Pointer, compile_kernel, launch, run

COPY_PLUS_ONE = (
    "\ts_load_dwordx4 s[4:7], s[0:1], 0x0\n\tv_lshlrev_b32_e32 v1, 2, v0\n\tglobal_load_dword v2, v1, s[4:5]\n"
    "\ts_waitcnt vmcnt(0)\n\tv_add_u32_e32 v2, 1, v2\n\tglobal_store_dword v1, v2, s[6:7]"
)


def shifted(base):
    """Views of 64 elements, the second 4 further on."""
    return base[:64], base[4:68]


@pytest.mark.parametrize("make", [np.arange, torch.arange], ids=["numpy", "torch"])
def test_views_that_overlap_share_memory(make):
    base = make(72, dtype=torch.int32 if make is torch.arange else np.int32)
    run(kernel(COPY_PLUS_ONE), (1,), *shifted(base))
    assert base.tolist() == [0, 1, 2, 3, *range(1, 65), 68, 69, 70, 71]


def test_views_that_share_no_byte_keep_their_own_bounds():
    base = torch.arange(128, dtype=torch.int32)
    with pytest.raises(OutOfBounds, match="byte 240"):
        run(kernel(COPY_PLUS_ONE), (1,), base[:60], base[60:124])


def test_a_transposed_view_reaches_its_whole_storage_with_what_overlaps_it():
    base = torch.zeros(64, 2, dtype=torch.int32)
    run(kernel(COPY_PLUS_ONE), (1,), base.T, base.view(-1)[64:])
    assert (base.view(-1)[:64] == 0).all() and (base.view(-1)[64:] == 1).all()


def test_what_may_only_be_read_is_read_and_kept():
    frozen, out = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    frozen.flags.writeable = False
    run(kernel(COPY_PLUS_ONE), (1,), frozen, out)
    assert (out == frozen + 1).all()
    run(kernel(COPY_PLUS_ONE), (1,), out, frozen)
    assert frozen.tolist() == list(range(64))


def test_a_tuple_is_laid_flat():
    x, y = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    run(kernel(COPY_PLUS_ONE), (1,), ((x,), y))
    assert (y == x + 1).all()


@triton.jit
def gather(table, out, N: tl.constexpr):
    offsets = tl.arange(0, N)
    source = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.int32))
    tl.store(out + tl.program_id(0) * N + offsets, tl.load(source + offsets))


def test_a_table_of_pointers_reaches_the_tensors_that_it_names_and_no_further():
    compiled = compile_kernel(gather, {"table": "*i64", "out": "*i32"}, {"N": 64}, {"num_warps": 1})
    tensors = [torch.full((64,), value, dtype=torch.int32) for value in (3, 5)]
    table = torch.tensor([tensor.data_ptr() for tensor in tensors])
    out = torch.zeros(128, dtype=torch.int32)
    run(compiled, (2,), table, out, reachable=tensors)
    assert out.tolist() == [3] * 64 + [5] * 64
    with pytest.raises(OutOfBounds, match="near no buffer"):
        run(compiled, (2,), table, out, reachable=tensors[:1])


def test_launches_leave_nothing_in_memory():
    memory, k = Memory(), kernel(COPY_PLUS_ONE)
    x = memory.add("x", np.zeros(256, np.uint8))
    for _ in range(1000):
        launch(k, (1,), [Pointer(x.base)] * 2, memory)
    assert memory.buffers == [x] and (x.bytes.view(np.int32) == 1000).all()


@pytest.mark.parametrize("threads", [2048, 4096, 1025, 0])
def test_more_threads_than_a_workgroup_holds_are_refused(threads):
    k = kernel("\ts_nop 0", threads=threads)
    with pytest.raises(ValueError, match=f"block: {threads} work-items of k; allowed: a multiple of 64 up to 1024"):
        run(k, (1,), np.zeros(4), np.zeros(4))


@triton.jit
def asserting(x, y, N: tl.constexpr):
    offsets = tl.arange(0, N)
    index = tl.load(x + offsets)
    tl.device_assert(index < 5, "no such row")
    value = tl.load(y + index)
    tl.device_assert(value >= 0, "negative")
    tl.store(y + offsets, index + 1)


@triton.jit
def printing(x, N: tl.constexpr):
    tl.device_print("x", tl.load(x + tl.arange(0, N)))


@pytest.mark.parametrize(
    "index, value, said",
    [
        (0, 0, None),
        (
            7,
            0,
            r'`tl.device_assert\(index < 5, "no such row"\)` fails for lane 2 of wave 2, workgroup 0; .*test_launch',
        ),
        (0, -3, r'`tl.device_assert\(value >= 0, "negative"\)` fails for lane 0 of wave 0, workgroup 0; .*test_launch'),
    ],
)
def test_a_device_assert_that_fails_is_named_by_its_line(index, value, said):
    compiled = compile_kernel(asserting, {"x": "*i32", "y": "*i32"}, {"N": 256}, {"num_warps": 4, "debug": True})
    x, y = np.zeros(256, np.int32), np.full(256, 0, np.int32)
    x[130], y[0] = index, value
    if said is None:
        run(compiled, (1,), x, y)
        assert (y == 1).all()
    else:
        with pytest.raises(EmulationError, match=said):
            run(compiled, (1,), x, y)


def test_a_device_print_is_refused_by_its_name():
    compiled = compile_kernel(printing, {"x": "*i32"}, {"N": 64}, {"num_warps": 1})
    with pytest.raises(EmulationError, match=r"tl\.device_print has the host print.*s_sendmsg"):
        run(compiled, (1,), np.zeros(64, np.int32))
