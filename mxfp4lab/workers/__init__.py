"""Worker processes with a time limit per task: compiling and measuring, on this machine or on a Ray cluster.

`process` is one supervised process, `pools` many of them, `compiling` plans compiled on all cores.
"""

from mxfp4lab.workers.compiling import PlanResult, compile_jobs, compile_many
from mxfp4lab.workers.pools import Done, LocalPool, Pool, Task, open_pool
from mxfp4lab.workers.process import Outcome, Worker

__all__ = [
    "Done", "LocalPool", "Outcome", "PlanResult", "Pool", "Task", "Worker",
    "compile_jobs", "compile_many", "open_pool",
]  # fmt: skip
