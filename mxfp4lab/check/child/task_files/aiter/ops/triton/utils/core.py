"""Where tuned configs would lie."""

import os

AITER_TRITON_CONFIGS_PATH = os.path.join(os.environ.get("HOME", "."), "aiter_configs")
os.makedirs(os.path.join(AITER_TRITON_CONFIGS_PATH, "gemm"), exist_ok=True)
