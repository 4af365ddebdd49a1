"""mxfp4lab: understand, prove, tune and export MXFP4 GEMMs for AMD MI355X (gfx950).

The rooms and the one direction in which they import each other are drawn in README.md. Importing this package
imports neither torch nor triton, so that ``python -m mxfp4lab --help`` answers at once.
"""

__version__ = "0.1.0"
