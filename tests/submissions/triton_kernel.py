#!POPCORN leaderboard amd-mxfp4-mm
#!POPCORN gpu MI355X
"""One small Triton kernel of its own; the product itself comes from the task's reference."""
import torch
import triton
import triton.language as tl
from reference import ref_kernel
from task import input_t, output_t

assert torch.cuda.is_available()
DEVICE = torch.device("cuda")
ONE = torch.ones(1, dtype=torch.bfloat16, device="cuda")


@triton.jit
def scale(x_ptr, factor_ptr, out_ptr, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place, mask=place < n)
    tl.store(out_ptr + place, x * tl.load(factor_ptr), mask=place < n)


def custom_kernel(data: input_t) -> output_t:
    c = ref_kernel(data)
    assert c.is_cuda and c.device.type == "cuda" and data[0].get_device() == 0
    out = torch.empty_like(c)
    scale[lambda meta: (triton.cdiv(c.numel(), meta["BLOCK"]),)](c, ONE, out, c.numel(), BLOCK=128)
    return out
