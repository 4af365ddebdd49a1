"""Triton sources only: no tuned numbers, no shapes, no knowledge of who launches them.

``convert``      bf16 to e2m1 and e8m0, four ways that give the same bits
``block``        the same for one block a lane, as gfx950 machine code
``tiles``        which tile a program works on, and how a tile of A, B or scales is loaded
``quantize``     A quantized once, by a kernel of its own
``gemm``         the GEMM body and its entry points
``sliced``       the GEMM whose waves divide K (Gluon)
``cooperative``  the same with A quantized once on every XCD (Gluon)
``waves``        what one wave of these two loads, quantizes and stores
``reduce``       sums the fp32 partial results of a split K
``hopper``       the GEMM for NVIDIA's sm_90
``null``         a kernel that does nothing: the floor of a timing
"""

import atexit
import sys


def _release_gluon() -> None:
    """Empty Gluon's modules before the interpreter ends.

    A Gluon function, its module and the front end's enumerations keep each other alive to the very end, and Triton's
    bindings then print a page of leak reports behind whatever the program said last.
    """
    for name in [name for name in sys.modules if name.startswith("triton.experimental.gluon")]:
        vars(sys.modules[name]).clear()


atexit.register(_release_gluon)
