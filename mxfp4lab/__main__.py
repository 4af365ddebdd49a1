"""``python -m mxfp4lab``: a thin command line over the rooms; see ``mxfp4lab.cli``."""

import sys

from mxfp4lab.cli import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
