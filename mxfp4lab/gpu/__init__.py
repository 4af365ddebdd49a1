"""The GPU box: executes, times and compares plans on a real GPU, ROCm or CUDA.

``device``       which GPUs there are, their clocks and caches, events, the cache overwrite
``timing``       the task's regime, the stop rule, interleaved finalists, winner or tie
``execute``      a plan's buffers, kernels and calls; ``module`` launches code objects that are not Triton's
``comparators``  what ours is compared with in the same run
``measure``      what runs inside a worker: check a plan's C, time it, compare finalists
"""

REGIME = "leaderboard"
"""Of a measured time: cold caches, one pair of events a call (`timing`)."""

MEASURE = "mxfp4lab.gpu.measure:measure_plan"
COMPARE = "mxfp4lab.gpu.measure:compare_plans"
COMPARE_TIMEOUT_S = 600.0
"""Tasks of a GPU worker, by the name under which it finds them."""
