"""Runs any submission file under the task's protocol, on a real GPU or on the gfx950 emulator.

The file runs in a process of its own: a scratch folder, no environment variables but those of the GPU toolchain, limits
on its seconds and its memory, output cut at 64 KiB, and everything it started ended with it. Inputs are made and
outputs judged outside of it. It is kept from writing outside its folder by Linux Landlock, by read-only mounts in a
namespace of its own, or by both; on the emulator the namespace also takes away the network and the sight of other
processes. Where a machine offers neither, the lab's records are compared before and after, and put back. The report
(`confined`) says which.

That protects records and a session from mistakes and from files that misbehave. It does not protect from malice: the
file can read what you can read, root can write raw devices, and code in the process that makes the calls can lie about
its own timing. What it replaces of the clocks, of torch's and of the check's own parts is noticed as long as it does
not replace what notices.

What a pass does not say: that the file does the same elsewhere (it can tell the emulator from a GPU, and today from
tomorrow); in benchmark mode, that every call did the work (the inputs are the same, as in the task: a file may keep
what it computed for equal contents; leaderboard mode has new contents every time); in test mode, that a second call
works.

What the checks on its kernels see, fault by fault, is in `data/mutations.csv` (made by `python -m tests.mutations`).
Races, in LDS and between workgroups, are looked for on request (`--report`). Out of reach is what only another order in
time would show: a store that overtakes another workgroup's earlier read, a stale line of a vector cache.
"""

from mxfp4lab.check.check import add_arguments, check_submission, main

__all__ = ["add_arguments", "check_submission", "main"]
