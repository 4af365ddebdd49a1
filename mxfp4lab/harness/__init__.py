"""Runs any submission file under the task's protocol, on a real GPU or on the gfx950 emulator."""

from mxfp4lab.harness.check import add_arguments, check_submission, main

__all__ = ["add_arguments", "check_submission", "main"]
