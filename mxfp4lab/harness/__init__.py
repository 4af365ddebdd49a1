"""Runs any submission file under the task's protocol, on a real GPU or on the gfx950 emulator.

The file runs in a process of its own: a scratch folder as the only place where it may write (Linux Landlock; the
report says when a kernel has none), no network, no environment variables but those of the GPU toolchain, limits on
its seconds and its memory, output cut at 64 KiB, and everything it started ended with it. Inputs are made and outputs
judged outside of it. That protects records and a session from mistakes and from files that misbehave. It does not
protect from malice: the file can read what you can read, and a determined one can lie about its own timing.

What the checks on its kernels see, fault by fault, is in `data/mutations.csv` (made by `python -m tests.mutations`).
Out of their reach: the order in which workgroups see each other's stores, and waits for memory that only the compiler
places, because the emulator's loads and stores take effect at once.
"""

from mxfp4lab.harness.check import add_arguments, check_submission, main

__all__ = ["add_arguments", "check_submission", "main"]
