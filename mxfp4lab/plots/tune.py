"""Pictures of a search: who leads and with what resources, where time comes from, what was removed, which axes matter.

Every function draws into an Axes and returns it. A modelled time is labelled as one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from mxfp4lab.plots.style import EVIDENCE_COLOURS, HUES, variant_style
from mxfp4lab.tune.screens import main_kernel

if TYPE_CHECKING:
    from mxfp4lab.tune import Entry, Funnel, TuneResult


def ranking(ax: Axes, result: TuneResult, rows: int = 7) -> Axes:
    """The best configs as bars with their interval; tile, resources and spills stand beside each bar.

    Configs of one variant with one tile, split and number of warps are one bar, their best. Below the best, the best
    of every other variant and the best of the known submissions' configs.

    Args:
        ax: where to draw; about 0.35 inch of height per row.
        result: of a search.
        rows: how many of the best.
    """
    shown = notable(result, rows)
    if not shown:
        return _nothing(ax, "no config was ranked")
    longest = 0.0
    for place, (entry, _) in enumerate(shown):
        time = _time(entry)
        ax.barh(place, time, color=variant_style(entry.candidate.variant)[0], height=0.62, zorder=2)
        longest = max(longest, time)
        if entry.interval is not None and entry.latency_us is None:
            low, high = entry.interval
            ax.plot([low, high], [place, place], color="0.15", linewidth=1.2, zorder=3)
            longest = max(longest, high)
        ax.annotate(
            _beside(entry), (1.0, place), xycoords=("axes fraction", "data"), xytext=(6, 0),
            textcoords="offset points", va="center", ha="left", fontsize=8, annotation_clip=False,
        )  # fmt: skip
    ax.set_yticks(range(len(shown)), [_label(entry, place, result) for entry, place in shown])
    ax.set_ylim(len(shown) - 0.4, -0.6)
    ax.set_xlim(0, longest * 1.03)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(_time_label([entry for entry, _ in shown]))
    ax.set_title(f"Best configs of {result.shape} (rank; star: the {result.pick.word if result.pick else 'pick'})")
    return ax


def notable(result: TuneResult, rows: int) -> list[tuple[Entry, int]]:
    """(entry, rank) of the best of each tile, then of each variant and of the known submissions, in ranked order."""
    leaders = result.leaders()
    kept: list[tuple[Entry, int]] = []
    variants: set[str] = set()
    known = False
    for place, entry in enumerate(result.ranked(), start=1):
        variant = entry.candidate.variant
        if entry in leaders[:rows] or variant not in variants or (entry.candidate.origins and not known):
            kept.append((entry, place))
        variants.add(variant)
        known = known or bool(entry.candidate.origins)
    return kept


def landscape(ax: Axes, result: TuneResult) -> Axes:
    """Every ranked config: instructions that one wave of the GEMM issues against its time; registers where the code of
    a target is not counted.

    A cross under a marker says that the kernel spills registers; a ring marks a known submission's own config.
    """
    counted = result.arch == "gfx950"
    entries = [entry for entry in result.ranked() if entry.counts is not None or not counted]
    if not entries:
        return _nothing(ax, "no config was counted" if counted else "no config was ranked")
    _issue = _issue_cycles if counted else _registers
    for variant in dict.fromkeys(entry.candidate.variant for entry in entries):
        mine = [entry for entry in entries if entry.candidate.variant == variant]
        colour, marker = variant_style(variant)
        ax.scatter([_issue(e) for e in mine], [_time(e) for e in mine], s=26, color=colour, marker=marker,
                   alpha=0.8, linewidths=0, label=variant, zorder=2)  # fmt: skip
    spilled = [e for e in entries if main_kernel(e.facts).get("spilled_vgprs", 0)]
    ax.scatter([_issue(e) for e in spilled], [_time(e) for e in spilled], s=34, color="black", marker="x",
               linewidths=0.9, zorder=3)  # fmt: skip
    known = [e for e in entries if e.candidate.origins]
    ax.scatter([_issue(e) for e in known], [_time(e) for e in known], s=72, facecolors="none", edgecolors="black",
               linewidths=0.9, zorder=3)  # fmt: skip
    if result.pick is not None:
        chosen = next(e for e in entries if e.candidate.config == result.pick.config)
        ax.scatter([_issue(chosen)], [_time(chosen)], s=190, color=HUES["yellow"], marker="*", edgecolors="black",
                   linewidths=0.8, zorder=4)  # fmt: skip
    ax.set_xscale("log")
    ax.set_yscale("log")
    _plain_ticks(ax)
    ax.set_xlabel(
        "issue cycles of one GEMM wave (4 per VALU, 16 or 32 per MFMA instruction), emulated counts"
        if counted
        else "registers a thread of the GEMM (instructions are counted in gfx950 code only)"
    )
    ax.set_ylabel(_time_label(entries))
    handles, _ = ax.get_legend_handles_labels()
    handles += [
        Line2D([], [], linestyle="", marker="o", markerfacecolor="none", color="black", label="known submission"),
        *([Line2D([], [], linestyle="", marker="x", color="black", label="spills registers")] if spilled else []),
        Line2D([], [], linestyle="", marker="*", markersize=11, markerfacecolor=HUES["yellow"],
               color="black", label=result.pick.word if result.pick else "pick"),
    ]  # fmt: skip
    ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    ax.set_title(f"Time against {'issue cycles' if counted else 'registers'}, {result.shape}")
    return ax


def funnel(ax: Axes, of: Funnel) -> Axes:
    """How many configs each stage left; what removed the others is written beside the stage that follows."""
    stages = list(of.left)
    counts = [of.left[stage] for stage in stages]
    ax.barh(range(len(stages)), counts, color=EVIDENCE_COLOURS["emulated"], height=0.62, zorder=2)
    for place, count in enumerate(counts):
        ax.annotate(str(count), (count, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8.5)
    removed = ", ".join(f"{why} {count}" for why, count, _ in of.removed_lines())
    ax.set_yticks(range(len(stages)), stages)
    ax.set_ylim(len(stages) - 0.4, -0.6)
    ax.set_xlim(0, max(counts, default=1) * 1.1 + 1)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(f"configs; removed by: {removed or 'nothing'}")
    ax.set_title("Funnel")
    return ax


def best_so_far(ax: Axes, result: TuneResult) -> Axes:
    """The best time after each config, in the order of work; a flat end says that more budget finds little."""
    best, steps = float("inf"), []
    for entry in result.entries:
        if entry.predicted_us is not None or entry.latency_us is not None:
            best = min(best, _time(entry))
        steps.append(best)
    if not np.isfinite(best):
        return _nothing(ax, "no config was ranked")
    ax.step(range(1, len(steps) + 1), steps, where="post", color=HUES["blue"], linewidth=1.6)
    ax.set_xlabel("configs tried")
    ax.set_ylabel("best " + _time_label(result.ranked()))
    ax.set_title("Best so far")
    return ax


def axis_effects(ax: Axes, result: TuneResult, rows: int = 10) -> Axes:
    """Which axes matter: share of the variance of log time that each explains, see `effects`."""
    found = effects(result)[:rows]
    if not found:
        return _nothing(ax, "too few configs to tell")
    colours = [HUES["orange"] if name == "variant" else HUES["blue"] for name, _, _ in found]
    ax.barh(range(len(found)), [share for _, share, _ in found], color=colours, height=0.62, zorder=2)
    for place, (_, share, best) in enumerate(found):
        ax.annotate(best, (share, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    ax.set_yticks(range(len(found)), [name for name, _, _ in found])
    ax.set_ylim(len(found) - 0.4, -0.6)
    ax.set_xlim(0, 1)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("share of variance of log time (axes: within a variant)")
    ax.set_title("Which axes matter; beside the bar: the best value")
    return ax


def effects(result: TuneResult) -> list[tuple[str, float, str]]:
    """(axis, share of variance explained, best value in words), most first.

    The variant's share is of all ranked configs; every other axis is judged within variants, so that it does not take
    credit for the variants that happen to have it. Shares are epsilon squared, ``1 - (SS_in / (n - groups)) /
    (SS_all / (n - 1))``, which is zero where an axis does no better than chance; axes overlap and do not add up.
    The best value has the lowest median.
    """
    entries = result.ranked()
    if len(entries) < 8:
        return []
    logs = np.log([_time(entry) for entry in entries])
    variants = [entry.candidate.variant for entry in entries]
    found = [("variant", _share(logs, variants, 1), _best(logs, variants))]
    centred = np.array(logs)
    for variant in set(variants):
        mine = np.array([name == variant for name in variants])
        centred[mine] -= centred[mine].mean()
    for name in entries[0].candidate.config.to_dict():
        values = [getattr(entry.candidate.config, name) for entry in entries]
        share = _share(centred, list(zip(variants, values, strict=True)), len(set(variants)))
        found.append((name, share, _best(centred, values)))
    return sorted((item for item in found if item[1] > 0.005), key=lambda item: -item[1])


def _share(logs: np.ndarray, labels: list[Any], taken: int) -> float:
    """Epsilon squared of a grouping; ``taken`` means have been subtracted from the values before."""
    groups = {label: [log for log, other in zip(logs, labels, strict=True) if other == label] for label in set(labels)}
    if len(groups) <= taken or len(logs) <= len(groups) or float(np.var(logs)) == 0:
        return 0.0
    inside = sum(len(members) * np.var(members) for members in groups.values()) / (len(logs) - len(groups))
    return float(1 - inside / (len(logs) * np.var(logs) / (len(logs) - taken)))


def _best(logs: np.ndarray, values: list[Any]) -> str:
    medians = {
        value: float(np.median([log for log, other in zip(logs, values, strict=True) if other == value]))
        for value in set(values)
    }
    return str(min(sorted(medians, key=str), key=medians.__getitem__)) or "none"


def _time(entry: Entry) -> float:
    time = entry.latency_us if entry.latency_us is not None else entry.predicted_us
    assert time is not None
    return time


def _time_label(entries: list[Entry]) -> str:
    if any(entry.latency_us is not None for entry in entries):
        return "time, us (measured)"
    version = next((entry.model_version for entry in entries if entry.model_version), "")
    return f"predicted time, us (modelled{f', {version}' if version else ''})"


def _registers(entry: Entry) -> float:
    return float(main_kernel(entry.facts).get("vgprs", 0) or 1)


def _issue_cycles(entry: Entry) -> float:
    launch = max(entry.counts.launches, key=lambda found: found.mfma_per_wave)
    return 4 * launch.valu_per_wave + 32 * launch.mfma32_per_wave + 16 * (launch.mfma_per_wave - launch.mfma32_per_wave)


def _label(entry: Entry, place: int, result: TuneResult) -> str:
    config = entry.candidate.config
    star = "★ " if result.pick is not None and config == result.pick.config else ""
    split = f" /{config.split_k}" if config.split_k > 1 else ""
    return f"{star}{place}  {entry.candidate.variant} {config.block_m}x{config.block_n}x{config.block_k}{split}"


def _beside(entry: Entry) -> str:
    kernel = main_kernel(entry.facts)
    amd = entry.candidate.plan.arch == "gfx950"
    said = [
        f"{_time(entry):.2f} us",
        f"{kernel.get('vgprs', '?')} {'VGPRs' if amd else 'registers'}",
        f"{kernel.get('spilled_vgprs', 0)} spilled",
        f"{kernel.get('lds_bytes', 0) / 1024:.0f} KiB {'LDS' if amd else 'shared'}",
        f"{entry.candidate.config.num_warps} warps",
        f"{len(entry.candidate.plan.launches)} launch" + "es" * (len(entry.candidate.plan.launches) > 1),
    ]
    return ", ".join(said) + (", known" if entry.candidate.origins else "")


def _plain_ticks(ax: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis in (ax.xaxis, ax.yaxis):
        low, high = axis.get_view_interval()
        spread = high / max(low, 1e-9)
        subs = (
            (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9) if spread < 5 else (1, 2, 3, 5, 7) if spread < 20 else (1, 2, 5)
        )
        axis.set_major_locator(LogLocator(subs=subs))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def _nothing(ax: Axes, why: str) -> Axes:
    ax.text(0.5, 0.5, why, ha="center", va="center", transform=ax.transAxes)
    ax.set_axis_off()
    return ax
