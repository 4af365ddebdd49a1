"""Deliberate single faults, and what catches each: a table that says what the lab's checks see and what they do not.

``python -m tests.mutations`` runs the whole table; ``make torture`` asserts it, ``make test`` a part of it.

``fault``        what a mutation is, and a kernel package with one line changed
``cases``        plans and inputs on which faults show; each passes without one
``detect``       every check that objects to a plan's machine code or results
``kernels``      faults of the Triton and Gluon sources; ``cooperative`` those of workgroups that work together
``surroundings`` faults of plans, launches, machine code, and of a submission file around the kernels
"""
