"""Memory: bounds with names and places, every width and alignment, LDS, scratch, atomics, the one hook."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from gfx950_machine import Machine, kernel, launch

from mxfp4lab.gfx950 import LdsOutOfRange, Memory, OutOfBounds, run
from mxfp4lab.gfx950.machine.memory import FIRST_ADDRESS, SPACING

LANE = np.arange(64)


def placed(data: np.ndarray, name: str = "x", waves: int = 1, memory: Memory | None = None) -> tuple[Machine, int]:
    """A machine whose memory holds one buffer, and the buffer's address."""
    memory = memory or Memory()
    buffer = memory.add(name, data)
    return Machine(waves, lds=1024, memory=memory), buffer.base


def point(machine: Machine, n: int, addresses: np.ndarray) -> None:
    """64-bit addresses into v[n:n+1]."""
    addresses = np.broadcast_to(addresses, machine.v(n).shape).astype(np.uint64)
    machine.v(n)[:], machine.v(n + 1)[:] = addresses & np.uint64(0xFFFFFFFF), addresses >> np.uint64(32)


@pytest.mark.parametrize("shift", [0, 1, 2, 4, 8])
@pytest.mark.parametrize(
    ("suffix", "nbytes"), [("ubyte", 1), ("ushort", 2), ("dword", 4), ("dwordx2", 8), ("dwordx3", 12), ("dwordx4", 16)]
)
def test_loads_of_every_width_at_every_alignment(suffix, nbytes, shift):
    data = np.random.default_rng(0).integers(0, 256, 4096, dtype=np.uint8)
    machine, base = placed(data)
    offsets = np.random.default_rng(1).permutation(64) * 16 + shift
    point(machine, 2, base + offsets)
    registers = max(nbytes // 4, 1)
    target = "v8" if registers == 1 else f"v[8:{7 + registers}]"
    machine.execute(f"global_load_{suffix} {target}, v[2:3], off offset:32")
    for lane in range(64):
        expected = data[offsets[lane] + 32 :][:nbytes].tobytes()
        got = b"".join(machine.v(8 + i)[0, lane].tobytes() for i in range(registers))
        assert got[:nbytes] == expected and not any(got[nbytes:])


@pytest.mark.parametrize("shift", [0, 1, 2, 4, 8])
@pytest.mark.parametrize(
    ("suffix", "nbytes"), [("byte", 1), ("short", 2), ("dword", 4), ("dwordx2", 8), ("dwordx4", 16)]
)
def test_stores_of_every_width_under_a_mask(suffix, nbytes, shift):
    data = np.zeros(2048, np.uint8)
    machine, base = placed(data)
    machine.v(4)[:] = 16 * LANE + shift
    machine.s(4)[:], machine.s(5)[:] = base & 0xFFFFFFFF, base >> 32
    for i in range(4):
        machine.v(8 + i)[:] = np.random.default_rng(i).integers(0, 1 << 32, 64, dtype=np.uint32)
    machine.exec(0xF0F0F0F0F0F0F0F0)
    registers = max(nbytes // 4, 1)
    value = "v8" if registers == 1 else f"v[8:{7 + registers}]"
    machine.execute(f"global_store_{suffix} v4, {value}, s[4:5] offset:16")
    expected = np.zeros(2048, np.uint8)
    for lane in LANE[LANE // 4 % 2 == 1]:
        raw = b"".join(machine.v(8 + i)[0, lane].tobytes() for i in range(registers))[:nbytes]
        expected[16 * lane + shift + 16 :][:nbytes] = np.frombuffer(raw, np.uint8)
    np.testing.assert_array_equal(data, expected)


def test_sign_extension_and_halves():
    data = np.array([0x80, 0xFF, 0x34, 0x12] * 64, np.uint8)
    machine, base = placed(data)
    point(machine, 2, base + 4 * LANE)
    machine.v(8)[:] = machine.v(9)[:] = 0xAAAABBBB
    machine.execute(
        "global_load_sbyte v4, v[2:3], off",
        "global_load_sshort v5, v[2:3], off",
        "global_load_short_d16 v8, v[2:3], off",
        "global_load_short_d16_hi v9, v[2:3], off",
        "global_load_ubyte_d16_hi v10, v[2:3], off offset:2",
    )
    assert [int(machine.v(n)[0, 7]) for n in (4, 5, 8, 9, 10)] == [
        0xFFFFFF80,
        0xFFFFFF80,
        0xAAAAFF80,
        0xFF80BBBB,
        0x00340000,
    ]
    machine.execute("global_store_short_d16_hi v[2:3], v8, off", "global_store_byte v[2:3], v8, off offset:3")
    assert list(data[:4]) == [0xAA, 0xAA, 0x34, 0x80]


def test_the_report_names_buffer_offset_instruction_lane_wave_and_workgroup():
    a, b = np.zeros(1024, np.float32), np.zeros(64, np.float32)
    body = """
\ts_load_dwordx4 s[4:7], s[0:1], 0x0
\tv_lshlrev_b32_e32 v1, 2, v0
\ts_lshl_b32 s3, s2, 9
\tv_add_u32_e32 v1, s3, v1
\tglobal_load_dword v2, v1, s[4:5] offset:8
\tglobal_store_dword v1, v2, s[6:7]"""
    with pytest.raises(OutOfBounds) as caught:
        launch(body, a, b, grid=4, threads=128, names=("a", "b"), workgroups=[0, 1])
    error = caught.value
    assert (error.buffer, error.kind, error.byte_offset, error.access_bytes) == ("b", "store", 256, 4)
    assert (error.lane, error.wave, error.workgroup) == (0, 1, 0)
    assert error.instruction.index == 5 and error.buffer_bytes == 256
    for part in (
        "k: out of bounds: store of 4 bytes",
        "'b' at byte 256",
        "4 bytes past its end (256 bytes)",
        "instruction 5: global_store_dword v1, v2, s[6:7]",
    ):
        assert part in str(error)
    with pytest.raises(OutOfBounds, match="'a' at byte 4096, 4 bytes past its end"):
        launch(body, a, np.zeros(1 << 20, np.float32), grid=8, threads=128, names=("a", "b"), workgroups=[7])
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error) and copy.lane == error.lane and isinstance(copy, OutOfBounds)


@pytest.mark.parametrize(
    ("displacement", "place"),
    [
        (-4, "'x' at byte -4, before its start"),
        (256, "'x' at byte 256, 4 bytes past"),
        (253, "'x' at byte 253, 1 bytes past"),
        (700_000, "at byte 700000"),
        ((1 << 31) + 5, "at byte 2147483653"),
        (-(1 << 31), "at byte -2147483648"),
    ],
)
def test_no_stray_access_reaches_a_neighbour(displacement, place):
    memory = Memory()
    memory.add("before", np.zeros(1 << 20, np.uint8))
    buffer = memory.add("x", np.zeros(256, np.uint8))
    memory.add("after", np.zeros(1 << 20, np.uint8))
    machine = Machine(1, memory=memory)
    point(machine, 2, np.where(LANE == 9, buffer.base + displacement, buffer.base))
    with pytest.raises(OutOfBounds, match="lane 9") as caught:
        machine.execute("global_load_dword v4, v[2:3], off")
    assert place in str(caught.value)
    machine.exec(~(1 << 9) & (1 << 64) - 1)  # a lane that is off may point anywhere
    machine.execute("global_load_dword v4, v[2:3], off")


def test_null_and_wild_pointers():
    machine, _ = placed(np.zeros(64, np.uint8))
    for address in (0, 5, (1 << 64) - 1, 1 << 63):
        machine.v(2)[:], machine.v(3)[:] = address & 0xFFFFFFFF, address >> 32
        with pytest.raises(OutOfBounds, match="near no buffer"):
            machine.execute("global_load_dword v4, v[2:3], off")


def test_one_access_may_span_buffers_lane_by_lane():
    memory = Memory()
    x = memory.add("x", np.arange(64, dtype=np.uint32).view(np.uint8))
    y = memory.add("y", (np.arange(64, dtype=np.uint32) + 1000).view(np.uint8))
    machine = Machine(1, memory=memory)
    point(machine, 2, np.where(LANE % 2 == 0, x.base + 4 * LANE, y.base + 4 * LANE))
    machine.execute("global_load_dword v4, v[2:3], off")
    np.testing.assert_array_equal(machine.v(4)[0], LANE + 1000 * (LANE % 2))
    assert SPACING > 1 << 33 and x.base >= FIRST_ADDRESS


def test_findings_can_be_recorded_instead():
    memory = Memory("record")
    buffer = memory.add("x", np.full(128, 7, np.uint8))
    machine = Machine(1, memory=memory)
    machine.v(4)[:] = 99
    point(machine, 2, buffer.base + 4 * LANE)
    machine.execute("global_load_dword v4, v[2:3], off", "global_store_dword v[2:3], v0, off")
    assert [f.kind for f in memory.findings] == ["load", "store"] and memory.findings[0].lane == 32
    assert not machine.v(4)[0, 32:].any() and (machine.v(4)[0, :32] == 0x07070707).all()
    with pytest.raises(ValueError, match="on_out_of_bounds"):
        Memory("ignore")


def test_buffer_resource_bounds_are_the_hardware_s():
    machine, base = placed(np.arange(256, dtype=np.uint8))
    for n, value in ((4, base & 0xFFFFFFFF), (5, base >> 32), (6, 128), (7, 0x27000)):
        machine.s(n)[:] = value
    machine.s(8)[:] = 64
    machine.v(2)[:] = 4 * LANE
    machine.v(3)[:] = np.where(LANE == 3, 0x80000000, 4 * LANE)
    machine.execute(
        "buffer_load_dword v4, v2, s[4:7], 0 offen",
        "buffer_load_dword v5, v3, s[4:7], s8 offen offset:8",
        "buffer_store_dword v2, v3, s[4:7], 0 offen",
    )
    words = np.arange(256, dtype=np.uint8).view(np.uint32)
    np.testing.assert_array_equal(machine.v(4)[0], np.where(LANE < 32, words, 0))
    expected = np.where((LANE < 14) & (LANE != 3), words[(LANE + 18) % 64], 0)
    np.testing.assert_array_equal(machine.v(5)[0], expected)
    after = machine.memory.buffers[0].views[4]
    np.testing.assert_array_equal(after, np.where((LANE < 32) & (LANE != 3), 4 * LANE, words))


def test_load_to_lds_goes_to_m0_plus_lane():
    data = np.random.default_rng(3).integers(0, 256, 4096, dtype=np.uint8)
    machine, base = placed(data)
    machine.s(124)[:] = 64
    point(machine, 2, base + 16 * ((LANE * 5) % 64))
    machine.execute("global_load_lds_dword v[2:3], off offset:16")
    words = data.view(np.uint32)
    np.testing.assert_array_equal(machine.chunk.lds.view(np.uint32)[20:84], words[((LANE * 5) % 64) * 4 + 4])
    machine.s(124)[:] = 0
    machine.exec(0x5)
    machine.execute("global_load_lds_dwordx4 v[2:3], off")
    lds = machine.chunk.lds
    np.testing.assert_array_equal(lds[:16], data[:16])
    np.testing.assert_array_equal(lds[32:48], data[160:176])
    machine.exec((1 << 64) - 1)
    before = lds.copy()
    machine.s(124)[:] = 0x7FFFFFFF  # how a compiler drops a wave's data
    machine.execute("global_load_lds_dword v[2:3], off")
    np.testing.assert_array_equal(lds, before)
    machine.s(124)[:] = 1024 - 240
    with pytest.raises(LdsOutOfRange):
        machine.execute("global_load_lds_dword v[2:3], off")


def test_lds_reads_and_writes():
    machine = Machine(2, lds=2048)
    rng = np.random.default_rng(4)
    for n in range(4, 8):
        machine.v(n)[:] = rng.integers(0, 1 << 32, (2, 64), dtype=np.uint32)
    machine.v(1)[:] = 16 * LANE
    machine.v(2)[:] = 16 * (63 - LANE)
    machine.execute(
        "ds_write_b128 v1, v[4:7] offset:64",
        "ds_read_b128 v[8:11], v2 offset:64",
        "ds_read_b96 v[36:38], v2 offset:68",
        "ds_read_u16 v12, v2 offset:66",
        "ds_read_i8 v13, v2 offset:67",
        "ds_read2_b32 v[14:15], v2 offset0:16 offset1:18",
        "ds_read_u16_d16_hi v16, v2 offset:64",
    )
    for i in range(4):
        np.testing.assert_array_equal(machine.v(8 + i), machine.v(4 + i)[:, ::-1])
    np.testing.assert_array_equal(machine.v(37), machine.v(6)[:, ::-1])
    np.testing.assert_array_equal(machine.v(12), machine.v(4)[:, ::-1] >> 16)
    np.testing.assert_array_equal(machine.v(13, np.int32), (machine.v(4)[:, ::-1] >> 24).astype(np.uint8).view(np.int8))
    np.testing.assert_array_equal(machine.v(15), machine.v(6)[:, ::-1])
    np.testing.assert_array_equal(machine.v(16), machine.v(4)[:, ::-1] << 16)
    machine.v(1)[:] = 4 * LANE
    machine.execute(
        "ds_write2st64_b32 v1, v4, v5 offset0:1 offset1:3",
        "ds_read2st64_b32 v[14:15], v1 offset0:3 offset1:1",
        "ds_write_b8 v1, v6",
        "ds_write_b16_d16_hi v1, v6 offset:2",
        "ds_read_b32 v16, v1",
    )
    np.testing.assert_array_equal(machine.v(14), machine.v(5))
    np.testing.assert_array_equal(machine.v(15), machine.v(4))
    np.testing.assert_array_equal(machine.v(16) & 0xFF, machine.v(6) & 0xFF)
    np.testing.assert_array_equal(machine.v(16) >> 16, machine.v(6) >> 16)


@pytest.mark.parametrize(
    ("line", "address", "nbytes"),
    [
        ("ds_read_b32 v2, v1", 1021, 4),
        ("ds_write_b8 v1, v2 offset:8", 1016, 1),
        ("ds_read_b128 v[4:7], v1", 0x80000000, 16),
    ],
)
def test_lds_out_of_range_is_named(line, address, nbytes):
    machine = Machine(2, lds=1024)
    machine.v(1)[:] = np.where((LANE == 17) & (np.arange(2) == 1)[:, None], address, 0)
    with pytest.raises(LdsOutOfRange) as caught:
        machine.execute(line)
    error = caught.value
    assert (error.lane, error.workgroup, error.access_bytes, error.lds_bytes) == (17, 1, nbytes, 1024)
    assert "lane 17" in str(error) and line in str(error)


@pytest.mark.parametrize(("bits", "kind"), [(16, np.uint16), (8, np.uint8)])
def test_transposing_reads(bits, kind):
    count = 64 // bits  # rows of 16 elements
    matrix = np.random.default_rng(bits).integers(0, 1 << bits, (4, count, 16)).astype(kind)
    machine = Machine(1, lds=1024)
    machine.chunk.lds[: matrix.nbytes] = matrix.view(np.uint8).ravel()
    machine.v(1)[:] = 8 * LANE
    machine.execute(f"ds_read_b64_tr_b{bits} v[2:3], v1")
    got = np.stack((machine.v(2)[0], machine.v(3)[0]), axis=-1).view(kind)
    for lane in range(64):
        np.testing.assert_array_equal(got[lane], matrix[lane // 16, :, lane % 16])


def test_atomics_see_each_other_in_order():
    memory = Memory()
    buffer = memory.add("x", np.zeros(64, np.uint8))
    machine = Machine(2, memory=memory)
    machine.s(4)[:], machine.s(5)[:] = buffer.base & 0xFFFFFFFF, buffer.base >> 32
    machine.v(1)[:] = 0
    machine.v(2)[:] = 3
    machine.execute("global_atomic_add v3, v1, v2, s[4:5] sc0")
    np.testing.assert_array_equal(machine.v(3).ravel(), 3 * np.arange(128))
    machine.v(4, np.float32)[:] = 0.5
    machine.execute("global_atomic_add_f32 v1, v4, s[4:5] offset:8", "global_atomic_umax v1, v2, s[4:5] offset:12")
    words = buffer.views[4]
    assert words[0] == 384 and words[2:3].view(np.float32)[0] == 64 and words[3] == 3
    machine.v(6)[:], machine.v(7)[:] = 5, LANE  # new value, expected value
    machine.execute("global_atomic_cmpswap v8, v1, v[6:7], s[4:5] offset:16 sc0")
    assert buffer.views[4][4] == 5 and machine.v(8)[0, 0] == 0 and (machine.v(8).ravel()[1:] == 5).all()


def test_packed_bf16_atomics_round_every_addition():
    memory = Memory()
    buffer = memory.add("x", np.zeros(16, np.uint8))
    machine = Machine(1, memory=memory)
    for n, value in ((4, buffer.base & 0xFFFFFFFF), (5, buffer.base >> 32), (6, 16), (7, 0)):
        machine.s(n)[:] = value
    values = torch.randn(64, 2, generator=torch.Generator().manual_seed(0)).bfloat16()
    machine.v(1)[:] = 0
    machine.v(2)[:] = values.view(torch.int16).numpy().view(np.uint32)[:, 0]
    machine.execute(
        "buffer_atomic_pk_add_bf16 v2, v1, s[4:7], 0 offen", "global_atomic_pk_add_bf16 v1, v2, s[4:5] offset:4"
    )
    total = torch.zeros(2, dtype=torch.bfloat16)
    for row in values:
        total = total + row
    expected = total.view(torch.int16).numpy().view(np.uint32)[0]
    assert buffer.views[4][0] == expected == buffer.views[4][1]


def test_lds_atomics():
    machine = Machine(2, lds=64)
    machine.chunk.lds[:] = 0
    machine.v(1)[:], machine.v(2)[:] = 8, 1
    machine.execute("ds_add_rtn_u32 v3, v1, v2", "ds_add_u32 v1, v2 offset:4", "ds_max_u32 v1, v3 offset:8")
    np.testing.assert_array_equal(machine.v(3), np.tile(LANE, (2, 1)))
    lds = machine.chunk.lds.view(np.uint32).reshape(2, -1)
    assert (lds[:, 2:5] == [64, 64, 63]).all()


def test_scratch_is_private_to_each_lane():
    machine = Machine(2)
    machine.v(1)[:] = np.arange(128).reshape(2, 64)
    machine.v(2)[:] = np.arange(128).reshape(2, 64) * 3
    machine.v(3)[:] = 4 * (LANE % 4)
    machine.execute(
        "scratch_store_dwordx2 off, v[1:2], off offset:8",
        "scratch_load_dword v4, off, off offset:12",
        "scratch_store_byte v3, v1, off offset:33",
        "scratch_load_ubyte v5, v3, off offset:33",
        "scratch_load_dwordx2 v[6:7], off, off offset:8",
    )
    np.testing.assert_array_equal(machine.v(4), machine.v(2))
    np.testing.assert_array_equal(machine.v(5), machine.v(1))
    np.testing.assert_array_equal(machine.v(6), machine.v(1))
    with pytest.raises(OutOfBounds, match="'scratch'"):
        machine.execute("scratch_load_dword v4, off, off offset:64")


def test_every_access_passes_the_one_hook():
    seen = []
    data = np.zeros(1024, np.uint32)
    body = """
\ts_load_dwordx2 s[4:5], s[0:1], 0x0
\tv_lshlrev_b32_e32 v1, 2, v0
\tglobal_load_dword v2, v1, s[4:5]
\tds_write_b32 v1, v2
\tds_read_b32 v3, v1
\tglobal_atomic_add v1, v3, s[4:5]
\tglobal_store_byte v1, v3, s[4:5]"""
    launch(body, data, lds=256, hooks=[lambda a: seen.append((a.space, a.kind, a.nbytes, a.buffer and a.buffer.name))])
    assert seen == [
        ("scalar", "load", 8, "kernel arguments"),
        ("global", "load", 4, "arg0"),
        ("lds", "store", 4, None),
        ("lds", "load", 4, None),
        ("global", "atomic", 4, "arg0"),
        ("global", "store", 1, "arg0"),
    ]


def test_counts_of_traffic():
    data = np.zeros(1 << 14, np.uint32)
    body = """
\ts_load_dwordx2 s[4:5], s[0:1], 0x0
\tv_lshlrev_b32_e32 v1, 2, v0
\tv_lshlrev_b32_e32 v2, 8, v0
\tglobal_load_dword v3, v1, s[4:5]
\tglobal_load_dword v4, v2, s[4:5]
\tds_write_b32 v1, v3
\tv_and_b32_e32 v5, 0x3f00, v2
\tds_read_b32 v6, v5
\tds_read_b128 v[8:11], v1"""
    counts = launch(body, data, lds=1 << 15, count=True).counts
    by = {index: traffic for (index, _), traffic in counts.by_instruction.items()}
    assert (by[3].bytes, by[3].segments64, by[3].segments128) == (256, 4, 2)
    assert (by[4].bytes, by[4].segments64) == (256, 64)
    assert (by[5].lds_cycles, by[5].lds_ideal) == (1, 1)
    assert by[7].lds_cycles == 64  # 64 dwords of one bank
    assert counts.total("global") == 512 and counts.total("lds", "load") == 256 + 1024


def test_arguments_in_place_shared_and_refused():
    k = kernel(
        "\ts_load_dwordx4 s[4:7], s[0:1], 0x0\n\tv_lshlrev_b32_e32 v1, 2, v0\n\tglobal_load_dword v2, v1, s[4:5]\n"
        "\tv_add_u32_e32 v2, 1, v2\n\tglobal_store_dword v1, v2, s[6:7]"
    )
    x = torch.arange(64, dtype=torch.int32)
    run(k, (1,), x, x)
    assert (x == torch.arange(64) + 1).all()
    wide = torch.zeros(65, dtype=torch.int32)
    run(k, (1,), x, wide[1:])  # neither aligned nor whole
    assert (wide[1:] == torch.arange(64) + 2).all() and wide[0] == 0
    with pytest.raises(ValueError, match="3 given; k takes 2"):
        run(k, (1,), x, wide, x)
    with pytest.raises(ValueError, match="strides"):
        run(k, (1,), np.zeros((64, 2), np.int32)[:, 0], wide)
    with pytest.raises(ValueError, match="grid"):
        run(k, (0,), x, wide)
    with pytest.raises(ValueError, match="workgroups"):
        run(k, (1,), x, wide, workgroups=[3])
    with pytest.raises(ValueError, match="a str"):
        run(k, (1,), x, "x")
