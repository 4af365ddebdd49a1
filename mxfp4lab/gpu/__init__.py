"""The GPU box: executes, times and compares plans on a real GPU, ROCm or CUDA.

``device``       which GPUs there are, their architecture, caches and clocks
``timing``       the two regimes, the stop rule, the null-launch floor, interleaved finalists, winner or tie
``execute``      a plan's buffers, kernels and calls
``comparators``  what ours is compared with in the same run
``worker``       one process per GPU, with a time limit per task; a fault costs a row, never the parent
``executors``    many tasks over local GPUs, or over a Ray cluster
``counters``     hardware counters beside emulated counts
"""
