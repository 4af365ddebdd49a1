"""What a search hands back: its entries, the ranking with resources, and how to show them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mxfp4lab import display
from mxfp4lab.config import GemmConfig
from mxfp4lab.paths import shown_path
from mxfp4lab.records import Counts, Evidence, Status, Trial
from mxfp4lab.shapes import Shape
from mxfp4lab.tune.funnel import Funnel
from mxfp4lab.tune.pick import Pick
from mxfp4lab.tune.screens import main_kernel
from mxfp4lab.tune.space import Candidate


@dataclass(eq=False)
class Entry:
    """One candidate on its way through the funnel.

    Attributes:
        status: ``ok`` as long as nothing stopped it.
        place: among the finalists, once they were compared: 0 is the winner; None for all others.
        trials: its rows, from this run or an earlier one, in the order of the steps.
    """

    candidate: Candidate
    status: Status = Status.ok
    reason: str = ""
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    counts: Counts | None = None
    predicted_us: float | None = None
    interval: tuple[float, float] | None = None
    model_version: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)
    verified: str = "none"
    bf16_identical: float | None = None
    latency_us: float | None = None
    place: int | None = None
    trials: list[Trial] = field(default_factory=list)

    @property
    def rank_key(self) -> tuple[float, float, int, str, str]:
        """Best first: measured time if there is one, else predicted; of equals the nearest to the variant's default.

        Finalists come before all others, as their comparison placed them: a first look at one config alone is not to be
        compared with times that were taken alternately. Other times are equal where they round to the same hundredth of
        a microsecond: neither a clock nor the model tells more.
        """
        of = self.candidate
        place = math.inf if self.place is None else self.place
        return (place, self.time_us, of.distance, of.variant, of.config.config_id)

    @property
    def time_us(self) -> float:
        """The measured time if there is one, else the predicted, to a hundredth; of an entry that has either."""
        time = self.latency_us if self.latency_us is not None else self.predicted_us
        assert time is not None
        return round(time, 2)

    @property
    def evidence(self) -> Evidence:
        return Evidence.modelled if self.latency_us is None else Evidence.measured


class NoPickError(ValueError):
    """A search that ends with nothing to recommend."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the sentence alone."""
        return [f"NoPickError: {self}"]


class Table:
    """The ranking as a table, HTML in a notebook, plain text elsewhere."""

    def __init__(self, result: TuneResult, rows: int) -> None:
        self.result, self.rows = result, rows

    @property
    def top(self) -> list[tuple[str, Entry]]:
        """(rank, entry) of the rows shown; equal times share a rank, marked by "=".

        A finalist's time and a first look are of two kinds and never equal.
        """
        ranked = self.result.ranked()
        times = [(entry.place is None, entry.time_us) for entry in ranked]
        ranks = [f"{times.index(time) + 1}{'=' * (times.count(time) > 1)}" for time in times]
        return list(zip(ranks, ranked, strict=True))[: self.rows]

    @property
    def ties(self) -> str:
        """What the ranking does not tell apart, in a sentence or two; "" where there is nothing to say."""
        said = "=: the same time to 0.01 us" if any(rank.endswith("=") for rank, _ in self.top) else ""
        ranked = self.result.ranked()
        if said:
            said += ". " if ranked[0].place == 0 else "; the config nearest to its variant's default leads. "
        if ranked and ranked[0].latency_us is None and ranked[0].interval is not None:
            low, high = ranked[0].interval
            inside = sum(low <= entry.time_us <= high for entry in ranked)
            said += (
                f"{inside} of {len(ranked)} predictions lie within the first's interval, {low:.2f} to {high:.2f} us: "
                "the model does not tell them apart."
            )
        return said.strip()

    def __str__(self) -> str:
        rows = [_shown_row(place, entry) for place, entry in self.top]
        table = display.text_table(ranking_headers(self.result.arch), rows)
        return f"{table}\n{self.ties}" if self.ties else table

    __repr__ = __str__

    def _repr_html_(self) -> str:
        words = dict(zip(RANKING_HEADERS, ranking_headers(self.result.arch), strict=True))
        rows = [_stacked_row(rank, entry, words) for rank, entry in self.top]
        headers = ("rank", "us", "variant, tile m,n,k", "VALU/wave", words["VGPRs"], words["LDS B"], "C", "config")
        return display.card("Ranking", display.table(headers, rows, self.ties))


@dataclass
class TuneResult:
    """Everything a search found out.

    Attributes:
        entries: one per candidate tried, in the order of work.
        refused: rows of invalid configs.
        pick: None where nothing was left, or before the search came that far.
        interrupted: the search was stopped; run it again to go on.
        seconds: wall time of this run.
    """

    shape: Shape
    variants: tuple[str, ...]
    backend: str
    arch: str
    run_id: str
    folder: Path
    funnel: Funnel = field(default_factory=Funnel)
    entries: list[Entry] = field(default_factory=list)
    refused: list[Trial] = field(default_factory=list)
    pick: Pick | None = None
    warnings: list[str] = field(default_factory=list)
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def winner(self) -> Pick | None:
        """The pick, if it was measured; without a GPU there is no winner."""
        return self.pick if self.pick is not None and self.pick.evidence is Evidence.measured else None

    def ranked(self) -> list[Entry]:
        """Entries that have a time of some kind and failed nowhere, best first."""
        timed = [
            entry
            for entry in self.entries
            if entry.status is Status.ok and (entry.predicted_us is not None or entry.latency_us is not None)
        ]
        # Measured and predicted times are not comparable: where something was measured, only that is ranked.
        if any(entry.latency_us is not None for entry in timed):
            timed = [entry for entry in timed if entry.latency_us is not None]
        return sorted(timed, key=lambda entry: entry.rank_key)

    def leaders(self) -> list[Entry]:
        """Of ranked configs that share variant, tile, split and warps only the best, best first.

        Neighbours that differ in a small axis tend to have one time: what is verified, carried along as an
        alternative or drawn should be different in kind.
        """
        found: dict[tuple, Entry] = {}
        for entry in self.ranked():
            config = entry.candidate.config
            tile = (config.block_m, config.block_n, config.block_k, config.split_k, config.num_warps)
            found.setdefault((entry.candidate.variant, config.a_mode, tile), entry)
        return list(found.values())

    @property
    def trials(self) -> Any:
        """Every row of every candidate and refused config as a pandas DataFrame, one row per trial."""
        import pandas as pd

        rows = [row for entry in self.entries for row in entry.trials] + self.refused
        origins = {entry.candidate.config.config_id: entry.candidate.origins for entry in self.entries}
        return pd.DataFrame([_flat(trial, origins) for trial in rows], columns=None if rows else ["status"])

    @property
    def ranking(self) -> Any:
        """One row per ranked candidate with its resources, as a pandas DataFrame, best first."""
        import pandas as pd

        return pd.DataFrame([_ranking_row(place, entry) for place, entry in enumerate(self.ranked(), start=1)])

    def summary(self) -> str:
        """A few lines for a terminal: what came out, of what, and where it is recorded."""
        head = f"{self.shape}: {len(self.ranked())} configs ranked in {self.seconds:.1f} s"
        if self.interrupted:
            head += " (interrupted: run the same command again to go on)"
        lines = [head, "", str(self.funnel), ""]
        if self.ranked():
            lines += [str(self.table(8)), ""]
        lines.append(str(self.pick) if self.pick is not None else self.why_no_pick())
        return "\n".join([*lines, "", f"records: {shown_path(self.folder)}"])

    def why_no_pick(self) -> str:
        """Why there is no pick, in one sentence."""
        if self.interrupted:
            return "no pick yet: the search was interrupted"
        return f"no pick: {self.funnel.nothing_left()}"

    def require_pick(self) -> Pick:
        """The pick.

        Raises:
            NoPickError: there is none; the sentence says what removed what.
        """
        if self.pick is None:
            raise NoPickError(self.why_no_pick())
        return self.pick

    def table(self, rows: int = 10) -> Table:
        """The best configs with their resources, for showing."""
        return Table(self, rows)

    def __str__(self) -> str:
        return self.summary()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        body = self.funnel._repr_html_()
        if self.ranked():
            body += self.table()._repr_html_()
        if self.pick is not None:
            body += self.pick._repr_html_()
        else:
            body += display.card("No pick", display.escape(self.why_no_pick()))
        return body


RANKING_HEADERS = (
    "rank", "us", "evidence", "variant", "tile m,n,k", "split", "warps", "VALU/wave", "VGPRs", "spills", "LDS B",
    "waves/SIMD", "C", "config", "besides", "known",
)  # fmt: skip


_CUDA_WORDS = {"VGPRs": "registers", "LDS B": "shared B", "waves/SIMD": "warps/scheduler"}


def ranking_headers(arch: str) -> tuple[str, ...]:
    """`RANKING_HEADERS` in the words of a target."""
    words = {} if arch == "gfx950" else _CUDA_WORDS
    return tuple(words.get(header, header) for header in RANKING_HEADERS)


def _shown_row(place: str, entry: Entry) -> tuple[Any, ...]:
    config = entry.candidate.config
    kernel = main_kernel(entry.facts)
    time = entry.latency_us if entry.latency_us is not None else entry.predicted_us
    checked = "" if entry.bf16_identical is None else f"{entry.bf16_identical:.2%} {entry.verified}"
    return (
        place,
        time,
        _evidence_words(entry),
        entry.candidate.variant,
        f"{config.block_m},{config.block_n},{config.block_k}",
        config.split_k,
        config.num_warps,
        _main_launch(entry, "valu_per_wave"),
        kernel.get("vgprs", ""),
        kernel.get("spilled_vgprs", ""),
        kernel.get("lds_bytes", ""),
        kernel.get("occupancy_waves_per_simd", ""),
        checked,
        config.config_id,
        _besides(config),
        ", ".join(entry.candidate.origins),
    )


def _stacked_row(rank: str, entry: Entry, words: Mapping[str, str]) -> tuple[Any, ...]:
    """The facts of `_shown_row` in cells of two or three lines, so that a ranking is as wide as a page."""
    of = dict(zip(RANKING_HEADERS, _shown_row(rank, entry), strict=True))
    spills = display.badge(*display.spills_in_words(of["spills"] or 0))
    split = f", split {of['split']}" if of["split"] > 1 else ""
    return (
        rank,
        display.stacked(f"{of['us']:.2f}", display.badge(of["evidence"], str(entry.evidence))),
        display.stacked(of["variant"], f"{of['tile m,n,k']}{split}, {of['warps']} warps"),
        of["VALU/wave"],
        display.stacked(of["VGPRs"], spills),
        display.stacked(of["LDS B"], f"{of['waves/SIMD']} {words['waves/SIMD']}"),
        display.stacked(*of["C"].split(maxsplit=1)) if of["C"] else "",
        display.stacked(of["config"], of["besides"], of["known"] and f"known: {of['known']}"),
    )


def _evidence_words(entry: Entry) -> str:
    """The kind of evidence; of measured times whether they come from the comparison of finalists or a first look."""
    if entry.latency_us is None:
        return str(entry.evidence)
    return f"{entry.evidence}, {'first look' if entry.place is None else 'finalist'}"


def _besides(config: GemmConfig) -> str:
    """What a config changes besides the tile, which has columns of its own."""
    shown = ("block_m", "block_n", "block_k", "split_k", "num_warps")
    return " ".join(f"{name}={value}" for name, value in config.changes().items() if name not in shown)


def _main_launch(entry: Entry, name: str) -> Any:
    """A count of the launch that holds the matrix instructions."""
    if entry.counts is None or not entry.counts.launches:
        return ""
    return round(getattr(max(entry.counts.launches, key=lambda launch: launch.mfma_per_wave), name))


def _ranking_row(place: int, entry: Entry) -> dict[str, Any]:
    kernel = main_kernel(entry.facts)
    row: dict[str, Any] = {
        "rank": place,
        "evidence": str(entry.evidence),
        "predicted_us": entry.predicted_us,
        "extrapolated": entry.detail.get("extrapolated"),
        "latency_us": entry.latency_us,
        "variant": entry.candidate.variant,
        "config_id": entry.candidate.config.config_id,
        "known": ", ".join(entry.candidate.origins),
        "launches": len(entry.candidate.plan.launches),
        **{
            name: _main_launch(entry, name) for name in ("valu_per_wave", "mfma_per_wave", "lds_per_wave", "workgroups")
        },
        **{name: kernel.get(name) for name in ("vgprs", "agprs", "spilled_vgprs", "lds_bytes")},
        "waves_per_simd": kernel.get("occupancy_waves_per_simd"),
        "verified": entry.verified,
        "bf16_identical": entry.bf16_identical,
    }
    return row | entry.candidate.config.to_dict()


def _flat(trial: Trial, origins: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """A trial as one flat row: the config's fields as columns, the main kernel's resources beside them."""
    kernel = main_kernel(trial.resources or {})
    return {
        "run_id": trial.run_id,
        "shape": str(trial.shape),
        "variant": trial.variant,
        "config_id": trial.config_id,
        "known": ", ".join(origins.get(trial.config_id, ())),
        "evidence": str(trial.evidence),
        "status": str(trial.status),
        "reason": trial.reason,
        "predicted_us": trial.predicted_us,
        "latency_us": trial.latency_us,
        "model_version": trial.model_version,
        "regime": trial.regime,
        "verified": trial.verified,
        "bf16_identical": trial.bf16_identical,
        "vgprs": kernel.get("vgprs"),
        "spilled_vgprs": kernel.get("spilled_vgprs"),
        "lds_bytes": kernel.get("lds_bytes"),
        "started_at": trial.started_at,
        **trial.config,
    }
