"""``python -m mxfp4lab``: a thin command line over the rooms; see ``mxfp4lab.cli``."""

import contextlib
import os
import sys

from mxfp4lab.cli import run

if __name__ == "__main__":
    code = run(sys.argv[1:])
    for output in (sys.stdout, sys.stderr):
        with contextlib.suppress(BrokenPipeError):  # the reader has gone; there is nobody to tell
            output.flush()
    # Everything is written and every child has ended; Triton's bindings would print a page of leak reports on the way.
    os._exit(code)
