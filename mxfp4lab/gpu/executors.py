"""The tasks that a worker with a GPU answers, by name."""

MEASURE = "mxfp4lab.gpu.measure:measure_plan"
COMPARE = "mxfp4lab.gpu.measure:compare_plans"
COMPARE_TIMEOUT_S = 600.0
