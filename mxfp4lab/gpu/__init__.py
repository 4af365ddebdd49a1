"""The GPU box: executes, times and compares plans on a real GPU, ROCm or CUDA.

``device``       which GPUs there are, their architecture, caches, events, the cache overwrite
``clocks``       clocks, power and temperature, where they can be read
``timing``       the two regimes, the stop rule, the null-launch floor, interleaved finalists, winner or tie
``execute``      a plan's buffers, kernels and calls; ``module`` launches code objects that are not Triton's
``comparators``  what ours is compared with in the same run; ``aiter_kernels`` aiter's, away from ROCm
``measure``      what runs inside a worker: check a plan's C, time it, compare finalists
``worker``       one process per GPU, with a time limit per task; a fault costs a row, never the parent
``pools``        many tasks over local GPUs; ``ray_pool`` over a Ray cluster
``executors``    the GPU as a search sees it
``counters``     hardware counters beside emulated counts
"""

from typing import Any


def open_executor(seed: int, workers: int | None = None) -> Any:
    """See `executors.open_executor`; imported late, so that importing this package loads neither torch nor triton."""
    from mxfp4lab.gpu.executors import open_executor as opened

    return opened(seed=seed, workers=workers)
