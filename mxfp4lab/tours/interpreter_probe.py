"""Two lines of arithmetic on which Triton's interpreter and the compiled code part.

Run as `TRITON_INTERPRET=1 python -m mxfp4lab.tours.interpreter_probe` it prints what the interpreter makes of them.
"""

import json
import sys

import triton
import triton.language as tl

VALUES = (0.5, 2.0, 1.005859375, 0.25)  # the third lies three quarters of the way from one bf16 to the next


@triton.jit
def probe(x_ptr, not_ptr, bf16_ptr, N: tl.constexpr):
    """`not` on a block, as aiter's op since PR 975 uses it, and a conversion from f32 to bf16."""
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.store(not_ptr + i, tl.where(not (x < 1.0), 1, 0).to(tl.int8))
    tl.store(bf16_ptr + i, x.to(tl.bfloat16))


def main() -> int:
    import torch

    x = torch.tensor(VALUES)
    inverted, rounded = torch.zeros(4, dtype=torch.int8), torch.zeros(4, dtype=torch.bfloat16)
    probe[(1,)](x, inverted, rounded, 4)
    print(json.dumps({"not": inverted.tolist(), "bf16": rounded.tolist()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
