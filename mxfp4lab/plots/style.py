"""One look for every figure: colour-blind-safe hues, never colour alone, units on axes, SVG and PNG side by side."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from mxfp4lab.paths import writing

# Okabe and Ito, "Color Universal Design" (2008): told apart with any common colour blindness.
HUES: dict[str, str] = {
    "blue": "#0072b2",
    "vermilion": "#d55e00",
    "green": "#009e73",
    "purple": "#cc79a7",
    "orange": "#e69f00",
    "sky": "#56b4e9",
    "yellow": "#f0e442",
    "grey": "#8a8a8a",
}
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "h")
SMALL = 9  # points: no letter of a figure is smaller
EVIDENCE_COLOURS = {"measured": HUES["green"], "emulated": HUES["blue"], "modelled": HUES["purple"]}

# One look per variant in every figure; relatives (B row-major or preshuffled) have neighbouring hues.
_VARIANTS: dict[str, tuple[str, str]] = {
    "sliced_preshuffled": (HUES["blue"], "o"),
    "fused_preshuffled": (HUES["vermilion"], "s"),
    "fused_rowmajor": (HUES["orange"], "v"),
    "constexpr_preshuffled": (HUES["green"], "^"),
    "prequant_preshuffled": (HUES["purple"], "D"),
    "prequant_rowmajor": (HUES["sky"], "P"),
    "cooperative_preshuffled": ("#5b2a86", "p"),
    "quant_shuffle_asm": ("#4d4d4d", "X"),
    "reference": (HUES["grey"], "h"),
    "hopper": (HUES["blue"], "o"),
}

_RC: dict[str, Any] = {
    "figure.dpi": 110,
    "figure.facecolor": "white",  # figures stay readable on a dark page: they bring their own paper
    "savefig.facecolor": "white",
    "figure.constrained_layout.use": True,
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.7,
    "axes.edgecolor": "0.35",
    "xtick.color": "0.25",
    "ytick.color": "0.25",
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.frameon": False,
    "legend.fontsize": SMALL,
    "legend.title_fontsize": SMALL,
    "svg.hashsalt": "mxfp4lab",  # the same figure gives the same file
    "svg.fonttype": "path",
}


def use_style() -> None:
    """Set matplotlib's defaults for this process; `notebook.start` does it."""
    import matplotlib

    matplotlib.rcParams.update(_RC)


def variant_style(variant: str) -> tuple[str, str]:
    """(colour, marker) of a variant, the same in every figure; one without a look of its own gets grey stars."""
    return _VARIANTS.get(variant, (HUES["grey"], "*"))


def save(figure: Any, folder: Path | str, name: str) -> tuple[Path, Path]:
    """Write ``<folder>/<name>.svg`` and ``.png`` beside the records; returns both paths.

    Raises:
        ValueError: ``name`` is not a plain file name, or the folder cannot be written.
    """
    if not name or any(sign in name for sign in "/\\\0") or name.startswith("."):
        raise ValueError(f"name={name!r}; allowed: a plain file name without a folder")
    folder = Path(folder)
    paths = folder / f"{name}.svg", folder / f"{name}.png"
    with writing(paths[0]):
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(paths[0], metadata={"Date": None, "Creator": "mxfp4lab"})
        _save_png(figure, paths[1])
    return paths


def _save_png(figure: Any, path: Path) -> None:
    """256 colours, chosen for the least error of the worst: a third of the bytes, and a notebook holds all of them."""
    from PIL import Image

    raw = io.BytesIO()
    figure.savefig(raw, format="png", dpi=150)
    picture = Image.open(raw).convert("RGB")
    picture = picture.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    picture.save(path, "PNG", optimize=True)
