"""Every way in which submissions launch Triton kernels, one after another on the same numbers."""
import torch
import triton
import triton.language as tl
from reference import ref_kernel

FACTORS = torch.tensor([2.0, 0.5, 4.0, 0.25], dtype=torch.float32).cuda()
COMPILED = {}


@triton.jit
def scale_plain(x_ptr, out_ptr, factor, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place, mask=place < n)
    tl.store(out_ptr + place, (x * factor).to(tl.bfloat16), mask=place < n)


@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=1), triton.Config({"BLOCK": 128}, num_warps=2)], key=["n"])
@triton.jit
def scale_tuned(x_ptr, out_ptr, factor_ptr, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place, mask=place < n)
    tl.store(out_ptr + place, (x * tl.load(factor_ptr)).to(tl.bfloat16), mask=place < n)


@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def scale_heuristic(x_ptr, out_ptr, factor_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        x = tl.load(x_ptr + place)
        tl.store(out_ptr + place, (x * tl.load(factor_ptr)).to(tl.bfloat16))
    else:
        x = tl.load(x_ptr + place, mask=place < n)
        tl.store(out_ptr + place, (x * tl.load(factor_ptr)).to(tl.bfloat16), mask=place < n)


def custom_kernel(data):
    c = ref_kernel(data)
    n = c.numel()
    factors = FACTORS.to("cuda", non_blocking=True)
    one, two, three, four = (torch.empty(c.shape, dtype=c.dtype, device=c.device) for _ in range(4))
    scale_plain[(triton.cdiv(n, 128),)](c, one, 2.0, n, BLOCK=128)
    scale_tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](one, two, factors[1:], n)
    scale_heuristic[(triton.cdiv(n, 64),)](two, three, factors[2:], n, BLOCK=64)
    if "kernel" not in COMPILED:
        COMPILED["kernel"] = scale_plain.warmup(torch.bfloat16, torch.bfloat16, 0.25, n, BLOCK=256, grid=(1,))
        assert COMPILED["kernel"].metadata.num_warps == 4
    COMPILED["kernel"][(triton.cdiv(n, 256), 1, 1)](three, four, 0.25, n, 256)
    torch.cuda.synchronize()
    return four
