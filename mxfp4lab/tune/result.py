"""What a search hands back: its entries, the funnel, the ranking with resources; and how each is shown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mxfp4lab.display import Grid, Shown, badge, spills_in_words, stacked
from mxfp4lab.paths import shown_path
from mxfp4lab.records import Counts, Evidence, Status, Trial, content_hash
from mxfp4lab.shapes import Shape
from mxfp4lab.tune.book import newest
from mxfp4lab.tune.instruments import SCREENS, main_kernel
from mxfp4lab.tune.pick import NoPickError, Pick
from mxfp4lab.tune.space import Candidate

STAGES: dict[str, str] = {
    "enumerated": "tile axes, known submissions' configs, neighbours of the best",
    "valid": "config_errors has no objection",
    "distinct": "machine code that no other config stands for",
    "tried": "within the budget",
    "compiled": "the offline compiler made {arch} code",
    "passed screens": "{screens}",
    "ranked": "counted by the emulator, time predicted by the model",
    "verified": "executed whole on this shape, C compared bit by bit",
}


@dataclass(eq=False)
class Entry:
    """One candidate on its way through the funnel: what is known of it are its rows.

    Attributes:
        facts, counts: of its machine code, once it was looked at.
        trials: its rows, from this run or an earlier one, in the order of the steps.
        place: among the finalists, once they were compared: 0 is the winner; None for all others.
    """

    candidate: Candidate
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    counts: Counts | None = None
    trials: list[Trial] = field(default_factory=list)
    place: int | None = None

    @property
    def status(self) -> Status:
        """How the last step ended; ``ok`` as long as nothing stopped it."""
        return self.trials[-1].status if self.trials else Status.ok

    @property
    def reason(self) -> str:
        return self.trials[-1].reason if self.trials else ""

    @property
    def prediction(self) -> Trial | None:
        """The row that holds its modelled time."""
        return next((row for row in reversed(self.trials) if row.predicted_us is not None), None)

    @property
    def predicted_us(self) -> float | None:
        return None if self.prediction is None else self.prediction.predicted_us

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of the prediction."""
        return None if self.prediction is None else tuple(self.prediction.detail.get("interval") or ()) or None

    @property
    def checked(self) -> Trial | None:
        """The row that says whether its C is right: a GPU's where there is one, else the emulator's."""
        return newest(self.trials, evidence=Evidence.measured) or newest(self.trials, evidence=Evidence.emulated)

    @property
    def latency_us(self) -> float | None:
        return None if self.checked is None else self.checked.latency_us

    @property
    def verified(self) -> str:
        return "none" if self.checked is None else self.checked.verified

    @property
    def bf16_identical(self) -> float | None:
        return None if self.checked is None else self.checked.bf16_identical

    @property
    def time_us(self) -> float:
        """The measured time if there is one, else the predicted, to a hundredth; of an entry that has either."""
        time = self.latency_us if self.latency_us is not None else self.predicted_us
        assert time is not None
        return round(time, 2)

    @property
    def evidence(self) -> Evidence:
        return Evidence.modelled if self.latency_us is None else Evidence.measured

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
    def code(self) -> str:
        """What the compiled code is and does: configs that share it are one plan under two names."""
        if self.counts is None or self.latency_us is not None:
            return self.candidate.kernel_hash
        return content_hash([self.candidate.variant, self.counts.to_dict(), self.facts])

    def launch_count(self, name: str) -> Any:
        """A count of the launch that holds the matrix instructions; "" where none were taken."""
        if self.counts is None:
            return ""
        return round(getattr(max(self.counts.launches, key=lambda launch: launch.mfma_per_wave), name))

    def facts_row(self) -> dict[str, Any]:
        """The facts as one flat row: times, evidence, resources of the main kernel, the config's fields."""
        kernel = main_kernel(self.facts)
        of = self.candidate
        return {
            "evidence": str(self.evidence),
            "predicted_us": self.predicted_us,
            "extrapolated": self.prediction and self.prediction.detail.get("extrapolated"),
            "latency_us": self.latency_us,
            "variant": of.variant,
            "config_id": of.config.config_id,
            "known": ", ".join(of.origins),
            "launches": len(of.plan.launches),
            **{name: self.launch_count(name) for name in ("valu_per_wave", "mfma_per_wave", "workgroups")},
            **{name: kernel.get(name) for name in ("vgprs", "agprs", "spilled_vgprs", "lds_bytes")},
            "waves_per_simd": kernel.get("occupancy_waves_per_simd"),
            "verified": self.verified,
            "bf16_identical": self.bf16_identical,
            **of.config.to_dict(),
        }


@dataclass(repr=False)
class Funnel(Shown):
    """Counts per stage, and why configs left.

    Attributes:
        left: stage -> configs that reached it.
        removed: what removed configs -> how many ("spills", "lds", "invalid", "compile error", ...).
        example: what removed configs -> one of the reasons, as recorded.
        absent: variants that were not searched -> why.
        reused: trials that earlier runs had done.
        known: candidates that are a known submission's own.
        arch, device: of the search, for the words beside the stages; device is "" where nothing is measured.
    """

    left: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STAGES, 0))
    removed: Counter = field(default_factory=Counter)
    example: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    reused: int = 0
    known: int = 0
    arch: str = "gfx950"
    device: str = ""

    def reach(self, stage: str, count: int = 1) -> None:
        self.left[stage] += count

    def remove(self, why: str, reason: str) -> None:
        self.removed[why] += 1
        self.example.setdefault(why, reason)

    def nothing_left(self) -> str:
        """One sentence for a search that ends with nothing, naming what removed what."""
        took = ", ".join(f"{why} removed {count}" for why, count in self.removed.most_common())
        worst = next((self.example[why] for why, _ in self.removed.most_common() if self.example[why]), "")
        example = f" (for example: {worst})" if worst else ""
        return f"no config is left of {self.left['tried']} tried: {took or 'nothing was tried'}{example}"

    def words(self) -> dict[str, str]:
        """What each stage means on this target, and with a GPU where there is one."""
        home = self.arch == "gfx950"
        screens = "spills, LDS, scaled MFMA, hazards" if home else "spills, shared memory"
        words = {stage: said.format(arch=self.arch, screens=screens) for stage, said in STAGES.items()}
        if self.device:
            words["ranked"] = f"{'counted by the emulator, ' if home else ''}C right and timed on {self.device}"
            words["verified"] = f"C compared bit by bit on {self.device}, before its time counts"
        return words

    def to_dict(self) -> dict[str, Any]:
        names = ("left", "removed", "example", "absent", "reused", "known")
        return {name: dict(value) if isinstance(value := getattr(self, name), dict) else value for name in names}

    title = "Funnel"

    def lines(self) -> list[Any]:
        """A row per stage, what is not there, and a row per reason."""
        rows = [(stage, count, self.words()[stage]) for stage, count in self.left.items()]
        by_reason: dict[str, list[str]] = {}
        for variant, why in self.absent.items():
            by_reason.setdefault(why, []).append(variant)
        said = "; ".join(f"{', '.join(names)} ({why})" for why, names in by_reason.items())
        gone = [("not available here", len(self.absent), f"variants: {said}")] if self.absent else []
        parts: list[Any] = [Grid(("stage", "configs", "what it means"), [*gone, *rows])]
        if self.removed:
            why = [(w, count, SCREENS.get(w, ""), self.example[w]) for w, count in self.removed.most_common()]
            parts.append(Grid(("removed by", "configs", "why it matters", "for example"), why))
        note = f"{self.known} known submissions' configs among them; {self.reused} trials came from earlier runs"
        return [*parts, note]


@dataclass(repr=False)
class TuneResult(Shown):
    """Everything a search found out about a shape.

    Attributes:
        entries: one per candidate tried, in the order of work.
        refused: rows of invalid configs.
        pick: None where nothing was left, or before the search came that far.
        comparison: of the finalists, as the GPU worker gave it; {} without a GPU.
        interrupted: the search was stopped; run it again to go on.
        seconds: wall time of this run.
    """

    shape: Shape
    variants: tuple[str, ...]
    run_id: str
    folder: Path
    funnel: Funnel
    entries: list[Entry] = field(default_factory=list)
    refused: list[Trial] = field(default_factory=list)
    pick: Pick | None = None
    comparison: Mapping[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def arch(self) -> str:
        return self.funnel.arch

    @property
    def winner(self) -> Pick | None:
        """The pick, if it was measured; without a GPU there is no winner."""
        return self.pick if self.pick is not None and self.pick.evidence is Evidence.measured else None

    def ranked(self) -> list[Entry]:
        """Entries that have a time of some kind and failed nowhere, best first."""
        ok = [entry for entry in list(self.entries) if entry.status is Status.ok]
        timed = [entry for entry in ok if entry.predicted_us is not None or entry.latency_us is not None]
        # Measured and predicted times are not comparable: where something was measured, only that is ranked.
        if any(entry.latency_us is not None for entry in timed):
            timed = [entry for entry in timed if entry.latency_us is not None]
        return sorted(timed, key=lambda entry: entry.rank_key)

    def distinct(self) -> list[tuple[Entry, int]]:
        """Of ranked entries with the same code and counts the first, and how many configs it stands for."""
        ranked = self.ranked()
        codes = Counter(entry.code for entry in ranked)
        first = {entry.code: entry for entry in reversed(ranked)}
        return [(entry, codes[entry.code]) for entry in ranked if first[entry.code] is entry]

    def leaders(self) -> list[Entry]:
        """Of ranked configs that share variant, tile, split and warps only the best, best first.

        Neighbours that differ in a small axis tend to have one time: what is verified, carried along as an
        alternative or drawn should be different in kind.
        """
        found: dict[tuple, Entry] = {}
        for entry in self.ranked():
            config = entry.candidate.config
            tile = (config.block_m, config.block_n, config.block_k, config.split_k, config.num_warps)
            found.setdefault((entry.candidate.variant, len(entry.candidate.plan.launches), tile), entry)
        return list(found.values())

    @property
    def trials(self) -> Any:
        """Every row of every candidate and refused config as a pandas DataFrame, the config's fields as columns."""
        import pandas as pd

        rows = [row for entry in self.entries for row in entry.trials] + self.refused
        flat = [{**vars(row), "shape": str(row.shape), "counts": None, **row.config} for row in rows]
        return pd.DataFrame(flat, columns=None if rows else ["status"])

    @property
    def ranking(self) -> Any:
        """One row per ranked candidate with its resources, as a pandas DataFrame, best first."""
        import pandas as pd

        return pd.DataFrame([{"rank": n, **entry.facts_row()} for n, entry in enumerate(self.ranked(), start=1)])

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

    @property
    def title(self) -> str:
        again = " (interrupted: run the same command again to go on)" * self.interrupted
        return f"{self.shape}: {len(self.ranked())} configs ranked in {self.seconds:.1f} s{again}"

    def lines(self) -> list[Any]:
        """Funnel, ranking, and what came out."""
        ranking = ["", "Ranking", *self.table(8).lines()] if self.ranked() else []
        end = ["", self.pick.title, *self.pick.lines()] if self.pick is not None else [self.why_no_pick()]
        return [*self.funnel.lines(), *ranking, *end, f"records: {shown_path(self.folder)}"]


@dataclass(frozen=True, repr=False)
class Table(Shown):
    """The ranking: a row per distinct plan, and above it what is not told apart."""

    result: TuneResult
    rows: int
    title = "Ranking"

    @property
    def top(self) -> list[tuple[str, Entry, int]]:
        """(rank, entry, configs it stands for) of the rows shown; equal times share a rank, marked by "=".

        A finalist's time and a first look are of two kinds and never equal.
        """
        found = self.result.distinct()
        times = [(entry.place is None, entry.time_us) for entry, _ in found]
        ranks = [f"{times.index(time) + 1}{'=' * (times.count(time) > 1)}" for time in times]
        return [(rank, *row) for rank, row in zip(ranks, found, strict=True)][: self.rows]

    @property
    def ties(self) -> str:
        """What the ranking does not tell apart, in a sentence or two; "" where there is nothing to say."""
        ranked = self.result.ranked()
        said = []
        if ranked and ranked[0].latency_us is None and ranked[0].interval is not None:
            low, high = ranked[0].interval
            inside = sum(low <= entry.time_us <= high for entry in ranked)
            said.append(f"{inside} of {len(ranked)} are not told apart: they lie within the first's interval, "
                        f"{low:.2f} to {high:.2f} us.")  # fmt: skip
        if any(rank.endswith("=") for rank, _, _ in self.top):
            leads = "" if ranked[0].place == 0 else "; the config nearest to its variant's default leads"
            said.append(f"=: the same time to 0.01 us{leads}.")
        return " ".join(said)

    def lines(self) -> list[Any]:
        """The sentence, then the table."""
        home = self.result.arch == "gfx950"
        headers = ("rank", "us", "variant, tile m,n,k", "VALU/wave", "VGPRs" if home else "registers",
                   "LDS B" if home else "shared B", "C", "config")  # fmt: skip
        rows = [self._row(rank, entry, count) for rank, entry, count in self.top]
        return [*filter(None, [self.ties]), Grid(headers, rows)]

    def _row(self, rank: str, entry: Entry, count: int) -> tuple[Any, ...]:
        """Facts in cells of two or three lines, so that a ranking is as wide as a page."""
        config, kernel = entry.candidate.config, main_kernel(entry.facts)
        kind = str(entry.evidence)
        if entry.latency_us is not None:
            kind += ", first look" if entry.place is None else ", finalist"
        split = f", split {config.split_k}" if config.split_k > 1 else ""
        tile = f"{config.block_m},{config.block_n},{config.block_k}{split}, {config.num_warps} warps"
        spills = badge(*spills_in_words(kernel.get("spilled_vgprs") or 0))
        waves = "waves a SIMD" if self.result.arch == "gfx950" else "warps a scheduler"
        checked = "" if entry.bf16_identical is None else stacked(f"{entry.bf16_identical:.2%}", entry.verified)
        shown = ("block_m", "block_n", "block_k", "split_k", "num_warps")
        besides = " ".join(f"{name}={value}" for name, value in config.changes().items() if name not in shown)
        return (
            rank,
            stacked(f"{entry.time_us:.2f}", badge(kind, str(entry.evidence))),
            stacked(entry.candidate.variant, tile),
            entry.launch_count("valu_per_wave"),
            stacked(kernel.get("vgprs", ""), spills),
            stacked(kernel.get("lds_bytes", ""), f"{kernel.get('occupancy_waves_per_simd', '?')} {waves}"),
            checked,
            stacked(
                config.config_id, besides, f"and {count - 1} more configs with the same code" * (count > 1),
                entry.candidate.origins and f"known: {', '.join(entry.candidate.origins)}",
            ),
        )  # fmt: skip
