"""Pictures of a search: who leads and where its time goes, the landscape of all configs, which axes matter.

Every function draws into an Axes and returns it. A modelled time is labelled as one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from mxfp4lab.plots.style import HUES, variant_style

if TYPE_CHECKING:
    from mxfp4lab.tune import Entry, TuneResult

TERM_HUES = ("grey", "blue", "orange", "green", "purple", "sky", "vermilion", "yellow")


def ranking(ax: Axes, result: TuneResult, rows: int = 7) -> Axes:
    """The best configs as bars, split into the terms of their predicted time, with the interval as a line.

    Configs of one variant with one tile, split and number of warps are one bar, their best. Below the best, the best
    of every other variant and the best of the known submissions' configs. Measured times have no terms.

    Args:
        ax: where to draw; about 0.35 inch of height per row.
        result: of a search.
        rows: how many of the best.
    """
    shown = notable(result, rows)
    if not shown:
        return _nothing(ax, "no config was ranked")
    hues: dict[str, str] = {}
    longest = 0.0
    for place, (entry, _) in enumerate(shown):
        terms = entry.prediction.detail.get("terms") if entry.latency_us is None else None
        start = 0.0
        for name, us in (terms or {str(entry.evidence): entry.time_us}).items():
            if not us:
                continue
            colour = hues.setdefault(name, HUES[TERM_HUES[len(hues) % len(TERM_HUES)]])
            ax.barh(place, us, left=start, color=colour, height=0.62, zorder=2, label=name)
            start += us
        low, high = entry.interval if terms and entry.interval else (start, start)
        ax.plot([low, high], [place, place], color="0.15", linewidth=1.2, zorder=3)
        longest = max(longest, start, high)
        ax.annotate(
            _beside(entry), (1.0, place), xycoords=("axes fraction", "data"), xytext=(6, 0),
            textcoords="offset points", va="center", ha="left", fontsize=9, annotation_clip=False,
        )  # fmt: skip
    ax.set_yticks(range(len(shown)), [_label(entry, rank, result) for entry, rank in shown])
    ax.set_ylim(len(shown) - 0.4, -0.6)
    ax.set_xlim(0, longest * 1.03)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(_time_label([entry for entry, _ in shown]))
    ax.set_title(f"Best configs of {result.shape} (rank; star: the {result.pick.word if result.pick else 'pick'})")
    handles = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    ax.legend(handles.values(), handles.keys(), loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=4)
    return ax


def notable(result: TuneResult, rows: int) -> list[tuple[Entry, int]]:
    """(entry, rank) of the best of each tile, then of each variant and of the known submissions, in ranked order."""
    leaders = result.leaders()[:rows]
    kept: list[tuple[Entry, int]] = []
    variants: set[str] = set()
    known = False
    for rank, entry in enumerate(result.ranked(), start=1):
        variant = entry.candidate.variant
        if entry in leaders or variant not in variants or (entry.candidate.origins and not known):
            kept.append((entry, rank))
        variants.add(variant)
        known = known or bool(entry.candidate.origins)
    return kept


def landscape(ax: Axes, result: TuneResult) -> Axes:
    """Every ranked config: what one wave of the GEMM issues against its time; registers where code is not counted.

    A cross on a marker says that the kernel spills registers; a ring marks a known submission's own config.
    """
    import pandas as pd
    import seaborn as sns

    entries = result.ranked()
    if not entries:
        return _nothing(ax, "no config was ranked")
    counted = all(entry.counts is not None for entry in entries)
    x = "issue cycles of one GEMM wave (emulated counts)" if counted else "registers a thread of the GEMM"
    y = _time_label(entries)
    rows = [
        {x: _issue_cycles(entry) if counted else entry.facts_row()["vgprs"] or 1, y: entry.time_us,
         "variant": entry.candidate.variant, "spills": entry.facts_row()["spilled_vgprs"] or 0,
         "known": bool(entry.candidate.origins), "pick": _is_pick(entry, result)}
        for entry in entries
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    looks = {variant: variant_style(variant) for variant in frame.variant.unique()}
    sns.scatterplot(
        frame, x=x, y=y, hue="variant", style="variant", palette={name: look[0] for name, look in looks.items()},
        markers={name: look[1] for name, look in looks.items()}, s=34, alpha=0.8, linewidth=0, ax=ax, zorder=2,
    )  # fmt: skip
    rings = {"facecolors": "none", "edgecolors": "black", "linewidths": 0.9}
    for chosen, label, look in (
        (frame[frame.spills > 0], "spills registers", {"s": 34, "color": "black", "marker": "x", "linewidths": 0.9}),
        (frame[frame.known], "known submission", {"s": 78, **rings}),
        (frame[frame.pick], result.pick.word if result.pick else "",
         {"s": 190, "color": HUES["yellow"], "marker": "*", "edgecolors": "black", "linewidths": 0.8}),
    ):  # fmt: skip
        if len(chosen):
            ax.scatter(chosen[x], chosen[y], label=label, zorder=3, **look)
    ax.set(
        xscale="log", yscale="log", title=f"Time against {'issue cycles' if counted else 'registers'}, {result.shape}"
    )
    _plain_ticks(ax)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax


def axis_effects(ax: Axes, result: TuneResult, rows: int = 10) -> Axes:
    """Which axes matter for the pick's variant: share of the variance of log time that each explains."""
    found = effects(result)[:rows]
    if not found:
        return _nothing(ax, "too few configs of the pick's variant to tell")
    ax.barh(range(len(found)), [share for _, share, _ in found], color=HUES["blue"], height=0.62, zorder=2)
    for place, (_, share, value) in enumerate(found):
        ax.annotate(f"pick: {value}", (share, place), xytext=(4, 0), textcoords="offset points", va="center",
                    fontsize=9)  # fmt: skip
    ax.set_yticks(range(len(found)), [name for name, _, _ in found])
    ax.set_ylim(len(found) - 0.4, -0.6)
    ax.set_xlim(0, 1)
    ax.grid(axis="y", visible=False)
    leader = _leader(result).candidate.variant
    ax.set_xlabel(f"share of the variance of log time among the configs of {leader} that were ranked")
    ax.set_title(f"Which axes matter within {leader}")
    return ax


def effects(result: TuneResult) -> list[tuple[str, float, Any]]:
    """(axis, share of variance explained, the pick's value), most first, over the ranked configs of the pick's variant.

    Shares are epsilon squared, ``1 - (SS_in / (n - groups)) / (SS_all / (n - 1))``, which is zero where an axis does no
    better than chance; axes overlap and do not add up.
    """
    ranked = result.ranked()
    if not ranked:
        return []
    leader = _leader(result).candidate
    configs = {entry.candidate.config: entry.time_us for entry in ranked if entry.candidate.variant == leader.variant}
    logs = np.log(list(configs.values()))
    if len(logs) < 8 or np.var(logs) == 0:
        return []
    found = []
    for name, value in leader.config.to_dict().items():
        labels = np.array([str(getattr(config, name)) for config in configs])
        groups = [logs[labels == label] for label in dict.fromkeys(labels)]
        if 1 < len(groups) < len(logs):
            inside = sum(len(group) * np.var(group) for group in groups) / (len(logs) - len(groups))
            found.append((name, float(1 - inside / (len(logs) * np.var(logs) / (len(logs) - 1))), value))
    return sorted((item for item in found if item[1] > 0.005), key=lambda item: -item[1])


def _leader(result: TuneResult) -> Entry:
    """The pick's entry; the best ranked one before there is a pick."""
    ranked = result.ranked()
    return next((entry for entry in ranked if _is_pick(entry, result)), ranked[0])


def _is_pick(entry: Entry, result: TuneResult) -> bool:
    pick, of = result.pick, entry.candidate
    return pick is not None and (of.variant, of.config) == (pick.variant, pick.config)


def _time_label(entries: list[Entry]) -> str:
    if any(entry.latency_us is not None for entry in entries):
        return "time, us (measured)"
    return f"predicted time, us (modelled, {entries[0].prediction.model_version})"


def _issue_cycles(entry: Entry) -> float:
    """4 per VALU instruction, 16 or 32 per MFMA, of one wave of the launch that multiplies."""
    launch = max(entry.counts.launches, key=lambda found: found.mfma_per_wave)
    return 4 * launch.valu_per_wave + 32 * launch.mfma32_per_wave + 16 * (launch.mfma_per_wave - launch.mfma32_per_wave)


def _label(entry: Entry, rank: int, result: TuneResult) -> str:
    config = entry.candidate.config
    split = f" /{config.split_k}" if config.split_k > 1 else ""
    tile = f"{config.block_m}x{config.block_n}x{config.block_k}{split}"
    return f"{'★ ' * _is_pick(entry, result)}{rank}  {entry.candidate.variant} {tile}"


def _beside(entry: Entry) -> str:
    row = entry.facts_row()
    amd = entry.candidate.plan.arch == "gfx950"
    said = [
        f"{entry.time_us:.2f} us",
        f"{row['vgprs']} {'VGPRs' if amd else 'registers'}",
        f"{row['spilled_vgprs'] or 0} spilled",
        f"{(row['lds_bytes'] or 0) / 1024:.0f} KiB {'LDS' if amd else 'shared'}",
        f"{row['num_warps']} warps",
        f"{row['launches']} launch{'es' * (row['launches'] > 1)}",
    ]
    return ", ".join(said) + ", known" * bool(row["known"])


def _plain_ticks(ax: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis in (ax.xaxis, ax.yaxis):
        low, high = axis.get_view_interval()
        spread = high / max(low, 1e-9)
        subs = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9) if spread < 5 else (1, 2, 5)
        axis.set_major_locator(LogLocator(subs=subs))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def _nothing(ax: Axes, why: str) -> Axes:
    ax.text(0.5, 0.5, why, ha="center", va="center", transform=ax.transAxes)
    ax.set_axis_off()
    return ax
