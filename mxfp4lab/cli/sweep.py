"""``sweep``: `tune` in the plural: the task's six shapes unless told otherwise, a smaller budget each."""

from __future__ import annotations

import argparse

from mxfp4lab.cli import tune
from mxfp4lab.shapes import TASK_SHAPES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `tune`."""
    tune.add_arguments(parser)
    parser.set_defaults(budget="40")


def main(args: argparse.Namespace) -> int:
    """See `tune.main`."""
    args.shape = args.shape or [str(shape) for shape in TASK_SHAPES]
    return tune.main(args)
