"""What submissions import of aiter, under the names of old and new releases: six ways to call it, each to its C."""

import importlib.util
import sys
from pathlib import Path

import pytest

from mxfp4lab.aiter.install import AiterError, find_aiter, load_file
from mxfp4lab.check import check_submission

STAND_IN = Path(__file__).resolve().parents[1] / "mxfp4lab/check/child/task_files"
HEAD = "import torch, triton\nimport triton.language as tl\n"

PATTERNS = {
    "the task's reference": """
from aiter import dtypes
from aiter.ops.triton.quant import dynamic_mxfp4_quant
from aiter.utility.fp4_utils import e8m0_shuffle
import aiter
def custom_kernel(data):
    a, _, _, b, scale = data
    q, s = dynamic_mxfp4_quant(a)
    q, s = q.view(dtypes.fp4x2), e8m0_shuffle(s).view(dtypes.fp8_e8m0)
    return aiter.gemm_a4w4(q, b, s, scale, dtype=dtypes.bf16, bpreshuffle=True)
""",
    "the direct call with a config looked up once": """
from aiter.ops.gemm_op_a4w4 import gemm_a4w4_asm, get_GEMM_config
from aiter.ops.quant import QuantType, get_triton_quant
def custom_kernel(data):
    a, _, _, b, scale = data
    m, n, k = a.shape[0], b.shape[0], a.shape[1]
    config = get_GEMM_config(m, n, k)
    name, split = ("", 0) if config is None else (config["kernelName"], config["splitK"])
    q, s = get_triton_quant(QuantType.per_1x32)(a, shuffle=True)
    out = torch.empty(-(-m // 32) * 32, n, dtype=torch.bfloat16, device=a.device)
    gemm_a4w4_asm(q, b, s, scale, out, name, None, 1.0, 0.0, True, split)
    return out[:m].clone()
""",
    "a kernel named by its symbol": """
from aiter.ops.gemm_op_a4w4 import gemm_a4w4_asm
from aiter.utility.fp4_utils import dynamic_mxfp4_quant
NAME = "_ZN5aiter41f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128E"
def custom_kernel(data):
    a, _, _, b, scale = data
    q, s = dynamic_mxfp4_quant(a, shuffle=True)
    out = torch.empty(32, b.shape[0], dtype=torch.bfloat16, device=a.device)
    return gemm_a4w4_asm(q, b, s, scale, out, NAME, bpreshuffle=True)[: a.shape[0]].clone()
""",
    "the fused Triton operator": """
from aiter.ops.triton.gemm.basic.gemm_a16wfp4 import gemm_a16wfp4_preshuffle
def custom_kernel(data):
    a, _, _, b, scale = data
    n, k = b.shape[0], a.shape[1]
    w = b.view(torch.uint8).view(n // 16, k // 2 * 16)
    s = scale.view(torch.uint8)[:n].view(n // 32, -1)
    return gemm_a16wfp4_preshuffle(a, w, s, prequant=True, dtype=torch.bfloat16)
""",
    "split sums by aiter's reduce kernel": """
from aiter.ops.triton.gluon.gemm_afp4wfp4 import _gemm_afp4wfp4_reduce_kernel, get_splitk
from reference import dequantize_mxfp4, quantize_mxfp4, unshuffle_scales
def custom_kernel(data):
    a, _, b_q, _, scale = data
    m, n, k = a.shape[0], b_q.shape[0], a.shape[1]
    share, _, splits = get_splitk(k, 64, 4)
    share //= 2
    x = dequantize_mxfp4(*quantize_mxfp4(a))
    y = dequantize_mxfp4(b_q, unshuffle_scales(scale)[:n, : k // 32])
    cuts = [slice(i * share, (i + 1) * share) for i in range(splits)]
    parts = torch.stack([x[:, cut] @ y[:, cut].T for cut in cuts])
    c = torch.empty(m, n, dtype=torch.bfloat16, device=a.device)
    grid = (triton.cdiv(m, 16), triton.cdiv(n, 64))
    _gemm_afp4wfp4_reduce_kernel[grid](parts, c, m, n, *parts.stride(), *c.stride(), 16, 64, splits, 4)
    return c
""",
    "aiter's quantization inside a kernel": """
from aiter.ops.triton._triton_kernels.quant.quant import _mxfp4_quant_op
from aiter.ops.triton.utils._triton.pid_preprocessing import pid_grid, remap_xcd
from aiter.ops.triton.gemm.basic.gemm_afp4wfp4 import gemm_afp4wfp4
from reference import unshuffle_scales
@triton.jit
def quantize(x, q, s, K: tl.constexpr, ROWS: tl.constexpr):
    row, _ = pid_grid(remap_xcd(tl.program_id(0), ROWS), ROWS, 1)
    k = tl.arange(0, K)
    value = tl.load(x + row * K + k).to(tl.float32)
    codes, scales = _mxfp4_quant_op(tl.reshape(value, (1, K)), K, 1, 32)
    tl.store(q + row * (K // 2) + tl.arange(0, K // 2), tl.reshape(codes, (K // 2,)))
    tl.store(s + row * (K // 32) + tl.arange(0, K // 32), tl.reshape(scales, (K // 32,)))
def custom_kernel(data):
    a, _, b_q, _, scale = data
    m, k = a.shape
    q = torch.empty(m, k // 2, dtype=torch.uint8, device=a.device)
    s = torch.empty(m, k // 32, dtype=torch.uint8, device=a.device)
    quantize[(m,)](a, q, s, K=k, ROWS=m)
    return gemm_afp4wfp4(q, b_q.view(torch.uint8), s, unshuffle_scales(scale)[: b_q.shape[0], : k // 32])
""",
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_way_to_call_aiter_gives_the_reference(pattern, tmp_path):
    path = tmp_path / "submission.py"
    path.write_text(HEAD + PATTERNS[pattern])
    report = check_submission(path, backend="emulator", shapes=["8,128,256"])
    assert report.passed, report.summary()
    assert report.cases[0].bf16_identical_fraction == 1.0


@pytest.fixture
def stand_in(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] in ("aiter", "reference", "utils")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(STAND_IN))
    spec = importlib.util.spec_from_file_location("aiter", STAND_IN / "aiter/__init__.py",
                                                  submodule_search_locations=[str(STAND_IN / "aiter")])  # fmt: skip
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "aiter", module)
    spec.loader.exec_module(module)
    yield module
    for name in [name for name in sys.modules if name.split(".")[0] in ("aiter", "reference", "utils")]:
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_every_name_of_every_module_is_found_and_another_is_named(stand_in):
    for path, names in stand_in._MODULES.items():
        module = importlib.import_module(f"aiter.{path}")
        assert all(getattr(module, name) is not None for name in names.split())
    with pytest.raises(AttributeError, match=r"aiter\.ops\.shuffle.* has no shuffle_scales: shuffle_weight"):
        _ = importlib.import_module("aiter.ops.shuffle").shuffle_scales


@pytest.fixture
def theirs():
    try:
        return load_file(find_aiter(), "ops/triton/_triton_kernels/batched_gemm_afp4wfp4.py").get_splitk
    except AiterError as error:
        pytest.skip(str(error))


@pytest.mark.aiter
def test_splits_are_aiters_own(theirs, stand_in):
    ours = stand_in._found("get_splitk")
    for k in (256, 512, 896, 1536, 1664, 7168):
        for block in (64, 128, 256, 512):
            for splits in (1, 2, 4, 7, 8, 14):
                assert ours(k, block, splits) == theirs(k, block, splits), (k, block, splits)
