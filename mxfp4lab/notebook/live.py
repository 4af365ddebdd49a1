"""A search while it runs: in JupyterLab one view that is redrawn in place, elsewhere a few lines of log."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from mxfp4lab import display as look
from mxfp4lab.notebook.progress import LiveView, Progress
from mxfp4lab.plots.style import HUES, variant_style

if TYPE_CHECKING:
    from mxfp4lab.tune import Entry, TuneResult

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 560, 256, 46, 24, 34
_INK = "var(--jp-ui-font-color1, currentColor)"


class SearchView:
    """Hand ``hooks`` to `mxfp4lab.tune.tune_shape` as keyword arguments.

    Where somebody watches (JupyterLab) the funnel, the best so far and a scatter of time against registers are
    redrawn at most twice a second; under papermill and in a terminal a line is printed now and then.
    """

    def __init__(self, live: bool | None = None, every: float = 10.0, publish: Any = None) -> None:
        self._view = LiveView(live=live, publish=publish)
        self._log = Progress(every=every)
        self._step = ""

    @property
    def hooks(self) -> dict[str, Any]:
        return {"progress": self.progress, "watch": self.watch}

    def progress(self, stage: str, done: int, total: int, note: str = "") -> None:
        if self._view.live:
            self._step = f"{stage} {done}/{total}"
        else:
            self._log(stage, done, total, note)

    def watch(self, result: TuneResult) -> None:
        over = result.interrupted or result.seconds > 0
        self._view.show(lambda: LiveCard(result, self._step), last=over)


class LiveCard:
    """One drawing of a search in progress."""

    def __init__(self, result: TuneResult, step: str) -> None:
        self.html = draw(result, step)
        left = result.funnel.left
        best = best_words(result)
        self.text = f"{step}: {left['tried']} tried, {left['ranked']} ranked, {best}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self.html, "text/plain": self.text}


def best_words(result: TuneResult) -> str:
    """The best so far in words, its evidence included."""
    ranked = result.ranked()
    if not ranked:
        return "nothing ranked yet"
    best = ranked[0]
    return f"best {best.time_us:.2f} us ({best.evidence}) {best.candidate.variant} {best.candidate.config.config_id}"


def draw(result: TuneResult, step: str) -> str:
    """The card as HTML: stages and what removed configs on the left, the scatter on the right."""
    left = look.facts([(stage, count) for stage, count in result.funnel.left.items()])
    removed = ", ".join(f"{why} {count}" for why, count in result.funnel.removed.most_common()) or "nothing so far"
    state = "interrupted" if result.interrupted else "done" if result.seconds else step or "starting"
    body = (
        '<div style="display:flex;flex-wrap:wrap;gap:24px">'
        f'<div>{left}<div style="opacity:.75;max-width:260px">removed by: {look.escape(removed)}</div></div>'
        f"<div>{scatter(result.ranked())}</div></div>"
        f'<div style="margin-top:4px"><b>{look.escape(best_words(result))}</b></div>'
    )
    return look.card(f"Tuning {result.shape}: {state}", body)


def scatter(entries: list[Entry]) -> str:
    """Time against VGPRs of the main kernel as an SVG that takes the theme's ink; the best is ringed."""
    from mxfp4lab.tune import main_kernel

    points = [(main_kernel(e.facts).get("vgprs", 0), e.time_us, e.candidate.variant) for e in entries]
    if not points:
        return ""
    times = [time for _, time, _ in points]
    low, high = math.log(min(times) * 0.95), math.log(max(times) * 1.05)
    widest = max(max(vgprs for vgprs, _, _ in points), 64) * 1.05

    def place(vgprs: float, time: float) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - 8) * vgprs / widest
        return x, TOP + (HEIGHT - BOTTOM - TOP) * (high - math.log(time)) / (high - low)

    marks = []
    for vgprs, time, variant in reversed(points):
        x, y = place(vgprs, time)
        marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" fill="{variant_style(variant)[0]}" opacity=".85"/>')
    x, y = place(*points[0][:2])
    marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7" fill="none" stroke="{HUES["vermilion"]}" stroke-width="2"/>')
    ticks = "".join(
        f'<text x="{LEFT - 6}" y="{place(0, time)[1] + 4:.1f}" text-anchor="end">{time:.3g}</text>'
        for time in sorted({min(times), math.sqrt(min(times) * max(times)), max(times)})
    )
    ticks += "".join(
        f'<text x="{place(vgprs, times[0])[0]:.1f}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{vgprs}</text>'
        for vgprs in range(0, int(widest), 64)
    )
    kind = str(entries[0].evidence)
    frame = (
        f'<path d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - 8}" fill="none" stroke="{_INK}" stroke-opacity=".4"/>'
        f'<text x="{WIDTH - 8}" y="{HEIGHT - 4}" text-anchor="end">VGPRs of the GEMM</text>'
        f'<text x="{LEFT - 38}" y="12">time, us ({kind})</text>'
    )
    variants = dict.fromkeys(variant for _, _, variant in points)
    legend = " ".join(
        f'<span style="white-space:nowrap"><span style="color:{variant_style(variant)[0]}">&#9679;</span> '
        f"{look.escape(variant)}</span>"
        for variant in variants
    )
    label = f"scatter of {len(points)} configs: {kind} time in us against VGPRs"
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{look.escape(label)}" '
        f'style="font-size:10px;fill:{_INK};max-width:100%">{frame}{ticks}{"".join(marks)}</svg>'
        f'<div style="font-size:11px;max-width:{WIDTH}px">{legend}</div>'
    )
