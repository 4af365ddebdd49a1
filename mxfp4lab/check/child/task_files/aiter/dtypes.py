"""aiter's names of data types."""

import torch

fp4x2 = getattr(torch, "float4_e2m1fn_x2", torch.uint8)
fp8_e8m0 = getattr(torch, "float8_e8m0fnu", torch.uint8)
fp8 = torch.float8_e4m3fn
bf16, fp16, fp32 = torch.bfloat16, torch.float16, torch.float32
u8, i8, i32 = torch.uint8, torch.int8, torch.int32
