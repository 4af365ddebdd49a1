"""Triton and Gluon sources only: no tuned numbers, no shapes, no knowledge of who launches them."""

import atexit
import sys


def _release_gluon() -> None:
    """Empty Gluon's modules at the end: else they keep each other alive, and Triton prints a page of leak reports."""
    for name in [name for name in sys.modules if name.startswith("triton.experimental.gluon")]:
        vars(sys.modules[name]).clear()


atexit.register(_release_gluon)
