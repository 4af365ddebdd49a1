"""Figures in one style. Each drawing function takes an Axes, returns it, and neither computes nor reads files."""

from mxfp4lab.plots.style import EVIDENCE_COLOURS, HUES, MARKERS, SMALL, save, use_style, variant_style

__all__ = ["EVIDENCE_COLOURS", "HUES", "MARKERS", "SMALL", "save", "use_style", "variant_style"]
