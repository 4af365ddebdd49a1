"""Triton sources only: no tuned numbers, no shapes, no knowledge of who launches them.

``convert``   bf16 to e2m1 and e8m0, four ways that give the same bits
``tiles``     which tile a program works on, and how a tile of A, B or scales is loaded
``quantize``  A quantized once, by a kernel of its own
``gemm``      the GEMM body and its entry points
``reduce``    sums the fp32 partial results of a split K
"""
