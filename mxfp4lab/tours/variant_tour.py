"""What 03_variants shows, computed: tables of variants, single axes, knobs, the K loop, reads past the end of B."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mxfp4lab.config import GemmConfig
from mxfp4lab.emulate import count_plan
from mxfp4lab.gfx950 import compile_plan
from mxfp4lab.model import predict_counts
from mxfp4lab.notebook.isa_view import Line, inner_loop, lines_between
from mxfp4lab.paths import REPO_ROOT, data_path
from mxfp4lab.plan import VARIANTS, build_plan, default_config, known_configs
from mxfp4lab.shapes import Shape, parse_shape
from mxfp4lab.tours.ladder import Measured, Step, measure
from mxfp4lab.workers import compile_many

LAUNCH_HEADERS = (
    "variant",
    "launch",
    "workgroups x waves",
    "VALU / wave",
    "MFMA",
    "memory",
    "LDS",
    "registers",
    "spilled",
    "LDS KiB",
    "KiB read / workgroup",
    "workspace KiB",
)
OURS = ("sliced_preshuffled", "cooperative_preshuffled")
AGAINST_HEADERS = (
    "shape",
    "ours",
    "us",
    "its interval",
    "best known submission",
    "its config, us",
    "its interval",
    "configs counted",
    "told apart",
)
SOURCE_HEADERS = ("instructions", "of them VALU", "classes", "source line")
PAIR_HEADERS = ("axis: plain | changed", "VALU / wave", "memory / wave", "registers", "spilled", "modelled us")
KNOB_HEADERS = ("knob", "machine code", "VALU / wave", "memory / wave", "LDS / wave", "registers", "modelled us")
KNOBS: tuple[tuple[str, str], ...] = (
    ("AMDGCN_USE_BUFFER_OPS", "0"),
    ("TRITON_HIP_USE_ASYNC_COPY", "0"),
    ("TRITON_HIP_USE_ASYNC_COPY", "1"),
    ("OPTIMIZE_EPILOGUE", "1"),
    ("TRITON_DEFAULT_FP_FUSION", "0"),
    ("HIP_FORCE_DEV_KERNARG", "1"),
    ("PYTORCH_ROCM_ARCH", "gfx950"),
)


def gfx950_variants() -> list[str]:
    """Variants that run on gfx950."""
    return [name for name, spec in VARIANTS.items() if not spec.traits.hopper]


def all_variants(shapes: Sequence[Shape]) -> tuple[list[Measured], dict[str, str]]:
    """Every variant with its default config on every shape; variants that cannot be built here, with the reason."""
    measured, missing = [], {}
    for variant in gfx950_variants():
        for shape in shapes:
            if not VARIANTS[variant].serves(shape):
                continue
            try:
                measured.append(measure(Step(variant, variant, default_config(variant, shape)), shape))
            except ValueError as error:
                if not VARIANTS[variant].needs_aiter:
                    raise
                missing[variant] = str(error).splitlines()[0]
                break
    return measured, missing


def launch_rows(measured: Iterable[Measured], shape: Shape) -> list[list[Any]]:
    """A line per launch on one shape."""
    rows = []
    for m in measured:
        if m.counts.shape != shape:
            continue
        for c in m.counts.launches:
            rows.append(
                [
                    m.step.variant,
                    c.name,
                    f"{c.workgroups} x {c.waves_per_workgroup}",
                    f"{c.valu_per_wave:.0f}",
                    f"{c.mfma_per_wave:.0f}",
                    f"{c.vmem_per_wave:.0f}",
                    f"{c.lds_per_wave:.0f}",
                    c.vgprs + c.agprs,
                    c.spilled_vgprs,
                    f"{c.lds_bytes / 1024:.0f}",
                    f"{c.load_bytes_per_workgroup / 1024:.0f}",
                    f"{m.buffers_bytes / 1024:.0f}",
                ]
            )
    return rows


def predicted(measured: Iterable[Measured], shapes: Sequence[Shape]) -> dict[str, list[float | None]]:
    """Variant to modelled time on each shape, None where it was left out."""
    times: dict[str, list[float | None]] = {}
    for m in measured:
        row = times.setdefault(m.step.variant, [None] * len(shapes))
        row[shapes.index(m.counts.shape)] = round(m.prediction.predicted_us, 3)
    return times


def best_variants(measured: Iterable[Measured], shapes: Sequence[Shape]) -> dict[str, str]:
    """Shape to the variant with the least modelled time among the defaults."""
    times = predicted(measured, shapes)
    return {
        str(shape): min((row[i], variant) for variant, row in times.items() if row[i] is not None)[1]
        for i, shape in enumerate(shapes)
    }


def best_published(shapes: Sequence[Shape]) -> list[float | None]:
    """The best public harness time of an honest submission on each shape."""
    best: list[float | None] = [None] * len(shapes)
    with data_path("mi355x_published_times.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            shape = next((s for s in shapes if [row["m"], row["n"], row["k"]] == [str(x) for x in s.as_tuple]), None)
            if shape is not None and row["regime"].startswith("harness") and row["use"] != "exclude":
                i = shapes.index(shape)
                best[i] = min(float(row["us"]), best[i] or float("inf"))
    return best


def floor_us() -> float:
    """The model's launch floor: what an event pair around a launch that does nothing reads."""
    from mxfp4lab.model import stored_model

    return stored_model().parameters.launch_floor_us


def best_of_known(shape: Shape, most: int) -> tuple[str, Any, int] | None:
    """(label, prediction, configs counted) of the known submission whose config is predicted fastest with our kernels.

    Of a submission that has a whole space, at most ``most`` configs spread over it are counted. A config that limits
    registers (waves_per_eu) also runs without the limit: what it spills depends on the compiler's version.
    """
    by_label: dict[str, list[Any]] = {}
    for known in known_configs(shape):
        if not VARIANTS[known.variant].needs_aiter:
            by_label.setdefault(known.label, []).append(known)
    chosen = [known for group in by_label.values() for known in group[:: max(1, -(-len(group) // most))]]
    chosen += [
        dataclasses.replace(known, config=dataclasses.replace(known.config, waves_per_eu=0))
        for known in chosen
        if known.config.waves_per_eu
    ]
    plans = [build_plan(known.variant, known.config, shape) for known in chosen]
    best: tuple[str, Any] | None = None
    for result in compile_many(plans):
        if result.compiled is None:
            continue
        prediction = predict_counts(count_plan(result.compiled))
        if best is None or prediction.predicted_us < best[1].predicted_us:
            best = (chosen[result.index].label, prediction)
    return None if best is None else (*best, len(chosen))


def against_known(shapes: Sequence[Shape], most: int) -> list[list[str]]:
    """The better of our one-launch variants beside the best of the known submissions' own configs; modelled.

    Ours are default tiles with `amax="packed_max"`, the fewest instructions, as on the ladder.
    """
    rows = []
    for shape in shapes:
        steps = [
            Step("ours", name, dataclasses.replace(default_config(name, shape), amax="packed_max"))
            for name in OURS
            if VARIANTS[name].serves(shape)
        ]
        best = min((measure(step, shape) for step in steps), key=lambda made: made.prediction.predicted_us)
        ours = best.prediction
        known = best_of_known(shape, most)
        if known is None:
            continue
        label, theirs, counted = known
        apart = ours.interval[1] < theirs.interval[0]
        rows.append(
            [
                str(shape),
                best.step.variant,
                f"{ours.predicted_us:.2f}",
                "{:.1f} - {:.1f}".format(*ours.interval),
                label,
                f"{theirs.predicted_us:.2f}",
                "{:.1f} - {:.1f}".format(*theirs.interval),
                counted,
                "yes" if apart else "no: the intervals overlap",
            ]
        )
    return rows


def geometric_means(against: Sequence[Sequence[str]]) -> dict[str, float]:
    """Of our times and of the known submissions' over the rows of `against_known`, us."""
    columns = {"ours": AGAINST_HEADERS.index("us"), "theirs": AGAINST_HEADERS.index("its config, us")}
    return {
        name: round(math.exp(statistics.fmean(math.log(float(row[column])) for row in against)), 2)
        for name, column in columns.items()
    }


def dropped_ideas() -> tuple[list[str], list[list[str]]]:
    """Headers and rows of data/ideas.csv, what is on by default left out."""
    with data_path("ideas.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["verdict"] != "kept"]
    headers = ["idea", "shape", "before", "after", "verdict", "reason"]
    return headers, [[row[name] for name in headers] for row in rows]


def loop_of(shape: Shape, convert: str) -> list[Line]:
    """The K loop of the fused kernel over preshuffled B."""
    config = GemmConfig(block_m=16, block_n=128, block_k=256, convert=convert)
    kernel = compile_plan(build_plan("fused_preshuffled", config, shape)).kernels[0]
    return lines_between(kernel, *inner_loop(kernel.program))


def valu_of(lines: Iterable[Line]) -> int:
    """Vector instructions that are no MFMA."""
    return sum(line.kind in ("valu", "convert") for line in lines)


def by_source(lines: list[Line]) -> list[tuple[str, int, dict[str, int]]]:
    groups: dict[str, dict[str, int]] = {}
    for line in lines:
        kinds = groups.setdefault(line.source or "(no source line)", {})
        kinds[line.kind] = kinds.get(line.kind, 0) + 1
    return [(source, sum(kinds.values()), kinds) for source, kinds in groups.items()]


def source_rows(lines: Sequence[Line], most: int) -> list[list[Any]]:
    """The source lines with most instructions, most first."""
    rows = [
        [
            count,
            kinds.get("valu", 0) + kinds.get("convert", 0),
            ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items(), key=lambda item: -item[1])),
            source,
        ]
        for source, count, kinds in by_source(list(lines))
    ]
    return sorted(rows, key=lambda row: -row[0])[:most]


SOURCE_SHOWN = 84  # characters of a source line beside its instruction: both fit a page


def excerpt(lines: Sequence[Line], around: str, before: int = 5, lines_shown: int = 28) -> str:
    """Instructions around the first one that contains a text, each with the source line where it changes."""
    place = next((i for i, line in enumerate(lines) if around in line.text), 0)
    shown, last = [], ""
    for line in lines[max(place - before, 0) :][:lines_shown]:
        source = line.source if line.source != last else ""
        source = source if len(source) <= SOURCE_SHOWN else source[: SOURCE_SHOWN - 3] + "..."
        shown.append(f"{line.text[:56]:<58}{source}".rstrip())
        last = line.source
    return "\n".join(shown)


def group_wrap() -> list[list[Any]]:
    """(shape, wrap, bytes read past the end of B, first finding) for both ways to wrap, on the emulator."""
    import numpy as np

    from mxfp4lab.gfx950 import compile_kernel, run
    from mxfp4lab.kernels.wrong_wrap import sum_of_tile_bytes

    rows = []
    for text in ("16x2112x7168", "256x2880x512"):
        shape = parse_shape(text)
        tiles = -(-shape.n // 128)
        for by_groups in (False, True):
            kernel = compile_kernel(
                sum_of_tile_bytes,
                {"b_ptr": "*u8", "out_ptr": "*i32", "N": "i32", "K": "i32"},
                {"BLOCK_N": 128, "BLOCK_K": 256, "BY_GROUPS": by_groups},
                {"num_warps": 4},
            )
            b = np.ones(shape.n * shape.k // 2, np.uint8)
            furthest = 0

            def note(access: Any) -> None:
                nonlocal furthest
                if access.space == "global" and access.kind == "load":
                    ends = access.offsets if access.mask is None else access.offsets[access.mask]
                    furthest = max(furthest, int(ends.max(initial=0)) + access.nbytes)

            rest = (np.zeros(tiles * 8, np.int32), shape.n, shape.k)
            found = run(kernel, (tiles, 1, 1), b, *rest, workgroups=[tiles - 1], on_out_of_bounds="record").findings
            # How far it goes: the same with room behind B.
            run(kernel, (tiles, 1, 1), np.resize(b, len(b) + (1 << 21)), *rest, workgroups=[tiles - 1], hooks=(note,))
            rows.append(
                [
                    text,
                    "% (N // 16)" if by_groups else "% N",
                    max(furthest - len(b), 0),
                    str(found[0]).split(";")[0] if found else "none",
                ]
            )
    return rows


def own_kernels_stay_inside(shapes: Iterable[str]) -> int:
    """Run the fused and the sliced kernel whole on the emulator, which raises on any access outside; launches run."""
    import torch

    from mxfp4lab.emulate import emulate_plan

    dtypes = {"bf16": torch.bfloat16, "u8": torch.uint8}
    launches = 0
    for text in shapes:
        for variant, config in (
            ("fused_preshuffled", GemmConfig(block_n=128, convert="hw_bf16")),
            (
                "sliced_preshuffled",
                GemmConfig(block_n=128, block_k=128, num_warps=16 if "7168" in text else 4, convert="hw_bf16"),
            ),
        ):
            plan = build_plan(variant, config, text)
            inputs = {b.name: torch.zeros(b.shape, dtype=dtypes[b.dtype]) for b in plan.buffers if b.role == "input"}
            launches += len(emulate_plan(plan, inputs).launches)
    return launches


def pair_rows(pairs: Iterable[tuple[str, Step, Step]], shape: Shape) -> list[list[str]]:
    """Both sides of every pair."""
    known: dict[GemmConfig, Measured] = {}
    rows = []
    for axis, plain, changed in pairs:
        two = [known.setdefault(step.config, None) or measure(step, shape) for step in (plain, changed)]
        known[plain.config] = two[0]
        rows.append([axis, *(" | ".join(cell(m) for m in two) for cell in _PAIR_CELLS)])
    return rows


_PAIR_CELLS = (
    lambda m: f"{m.main.valu_per_wave:.0f}",
    lambda m: f"{m.main.vmem_per_wave:.0f}",
    lambda m: f"{m.main.vgprs + m.main.agprs}",
    lambda m: f"{m.main.spilled_vgprs}",
    lambda m: f"{m.prediction.predicted_us:.2f}",
)


def knob_rows(shape: Shape, most: int | None = None) -> list[list[str]]:
    """Each knob alone against none, for the fused kernel over preshuffled B."""
    step = Step("knobs", "fused_preshuffled", GemmConfig(block_n=128, convert="hw_bf16"))
    plain = measure(step, shape)
    rows = [["none", "", *_knob_cells(plain)]]
    reference = _code(step, shape, {})
    for name, value in KNOBS[:most]:
        same = _code(step, shape, {name: value}) == reference
        cells = _knob_cells(plain) if same else _knob_cells(measure(step, shape, {name: value}))
        rows.append([f"{name}={value}", "same" if same else "changed", *cells])
    return rows


def _knob_cells(m: Measured) -> list[str]:
    main = m.main
    return [
        f"{main.valu_per_wave:.0f}",
        f"{main.vmem_per_wave:.0f}",
        f"{main.lds_per_wave:.0f}",
        str(main.vgprs + main.agprs),
        f"{m.prediction.predicted_us:.2f}",
    ]


def _code(step: Step, shape: Shape, knobs: Mapping[str, str]) -> list[str]:
    """Instruction texts of every kernel: debug lines and labels may differ between equal codes."""
    kernels = compile_plan(build_plan(step.variant, step.config, shape), knobs=dict(knobs)).kernels
    return [instruction.text for kernel in kernels for instruction in kernel.program.instructions]


def recorded_times(shapes: Sequence[Shape]) -> tuple[list[str], list[list[str]]]:
    """Headers and rows of the measured times in data/recorded/: a row per device and variant, a column per shape."""
    best: dict[tuple[str, str], dict[Shape, float]] = {}
    for path in sorted((REPO_ROOT / "data" / "recorded").rglob("*.jsonl")):
        for line in path.read_text().splitlines():
            try:
                trial = json.loads(line)
            except json.JSONDecodeError:  # a torn last line
                continue
            if trial.get("evidence") == "measured" and trial.get("latency_us"):
                times = best.setdefault((trial["device"], trial["variant"]), {})
                shape = Shape(**trial["shape"])
                times[shape] = min(times.get(shape, math.inf), trial["latency_us"])
    rows = [
        [device, variant, *(f"{times[shape]:.2f}" if shape in times else "-" for shape in shapes)]
        for (device, variant), times in sorted(best.items(), key=lambda item: (item[0][0], min(item[1].values())))
    ]
    return ["device", "variant", *(f"{shape}, us" for shape in shapes)], rows or [["-"] * (2 + len(shapes))]
