"""`python -m mxfp4lab records import`: what a probe or the server's benchmark printed, as measured trials.

A report may be copied text or popcorn-cli's output file, with terminal colours and code fences. Lines that are not of
the report that their header began, torn or edited ones are refused by number; importing twice adds nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mxfp4lab.gpu import REGIME
from mxfp4lab.paths import read_bounded, shown_path
from mxfp4lab.shapes import parse_shape

if TYPE_CHECKING:
    from mxfp4lab.records import Trial

MARK = "mxfp4lab-probe"
MAX_REPORT_BYTES = 4 << 20
WORKER = "probe"
_UNITS = {"ns": 1e-3, "µs": 1.0, "μs": 1.0, "us": 1.0, "ms": 1e3, "s": 1e6}
_TIME = rf"([0-9.]+(?:e[+-]?\d+)?)\s*({'|'.join(_UNITS)})\b"
_SPEC = re.compile(r"m: (\d+); n: (\d+); k: (\d+); seed: (\d+)")


@dataclass
class Imported:
    """What became of a report.

    Attributes:
        added: rows that are new; known: rows that were imported before; refused: lines with their numbers and why.
        path: where new rows stand.
    """

    added: list[Trial] = field(default_factory=list)
    known: int = 0
    refused: list[str] = field(default_factory=list)
    path: Path | None = None

    def __str__(self) -> str:
        lines = [f"{len(self.added)} rows imported" + (f" to {shown_path(self.path)}" if self.path else "")]
        lines += [f"{self.known} were known"] if self.known else []
        lines += [f"{len(self.refused)} refused:", *(f"  {said}" for said in self.refused)] if self.refused else []
        return "\n".join(lines)


def import_report(
    report: str | Path, out: str | Path = "outputs", submission: str | Path | None = None, device: str = ""
) -> Imported:
    """Append the rows of a report to the records.

    Args:
        report: the file.
        out: folder of records, in whose `probes/` the probe lies that was submitted.
        submission: the file that was submitted: needed for benchmark lines, and for a probe that was written elsewhere.
        device: of benchmark lines, where the report does not name its GPU.

    Raises:
        ValueError: no such file, nothing to import in it, or no file to read configs from.
    """
    from mxfp4lab.records import TrialLog, new_run_id, read_all_trials, write_run_json

    path = Path(report)
    if not path.is_file():
        raise ValueError(f"{str(report)!r}: no such file")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", read_bounded(path, MAX_REPORT_BYTES, "replace"))
    given = None if submission is None else _read(submission)
    done, run_id = Imported(), new_run_id(WORKER)
    rows = [*_probe_rows(text, out, given, run_id, done.refused)]
    rows += _benchmark_rows(text, given, submission, device, run_id, done.refused)
    if not rows and not done.refused:
        raise ValueError(f"{str(report)!r} holds no line of a probe and no benchmark line")
    known, _ = read_all_trials(out)
    for trial in rows:
        before = known.get(trial.identity)
        if before is not None and before.detail.get("line") == trial.detail["line"]:
            done.known += 1
        else:
            done.added.append(trial)
    if done.added:
        folder = Path(out) / "runs" / run_id
        write_run_json(folder, {"run_id": run_id, "kind": "import", "report": path.name})
        with TrialLog(folder, WORKER) as log:
            for trial in done.added:
                log.append(trial)
            done.path = log.path
    return done


# a probe's lines ------------------------------------------------------------------------------------------------------


def _probe_rows(
    text: str, out: str | Path, given: str | None, run_id: str, refused: list[str]
) -> Iterator[Trial]:  # fmt: skip
    header: dict[str, Any] | None = None
    checksum, plans = 0, {}
    for number, line in enumerate(text.splitlines(), 1):
        if MARK not in line:
            continue
        match = re.search(rf"{MARK} (\{{.*\}}) ([0-9a-f]{{8}})\W*$", line)
        values = _json_object(match[1]) if match else None
        if values is None:
            refused.append(f"line {number}: torn: no whole line of a probe")
        elif "probe" in values:
            header = None
            if zlib.crc32(match[1].encode()) != int(match[2], 16):
                refused.append(f"line {number}: edited: the header's checksum is another")
                continue
            header, checksum = values, int(match[2], 16)
            plans = dict(_plans_of(values["probe"], out, given))
        elif header is None:
            refused.append(f"line {number}: foreign: no header of its report stands above it")
        elif zlib.crc32(match[1].encode(), checksum) != int(match[2], 16):
            refused.append(f"line {number}: edited, or of another report: its checksum is another")
        elif values.get("kernel") not in plans:
            refused.append(f"line {number}: foreign: probe {header['probe']} has no kernel {values.get('kernel')}")
        else:
            yield _probe_trial(header, values, plans[values["kernel"]], run_id, match[2])


def _plans_of(identity: str, out: str | Path, given: str | None) -> Iterator[tuple[str, tuple[str, dict[str, Any]]]]:
    """kernel_hash -> (variant, config) of the probe that printed a report."""
    text = given
    if text is None:
        path = Path(out) / "probes" / f"{identity}.py"
        if not re.fullmatch(r"[0-9a-f]{12}", str(identity)) or not path.is_file():
            raise ValueError(f"probe {identity!r} was not written here ({path}): name its file with --submission")
        text = _read(path)
    for _, variant, config, rest in _plan_lines(text):
        label = re.search(r'\("[0-9a-f]{12}", "([0-9a-f]{16})",$', rest)
        if label:
            yield label[1], (variant, config)


def _probe_trial(
    header: Mapping[str, Any], values: Mapping[str, Any], plan: tuple[str, dict[str, Any]], run_id: str, line: str
) -> Trial:
    failed, spread, emulated = str(values.get("failed", "")), values.get("us"), "counts" in values
    status = "runtime_error" if failed else "ok"
    if failed == "C is wrong":
        status = "incorrect"
    elif re.match(r"Compil|OutOfResources|MLIR", failed):
        status = "compile_error"
    detail = {"line": line, "statistic": "p50", "probe": header["probe"], "overwrite_bytes": header["overwrite"]}
    if spread:
        timing = dict(zip(("p20_us", "p50_us", "p80_us"), spread, strict=True))
        detail["timing"] = timing | {"n": values["n"], "floor_us": values["null"]}
    elif emulated:
        detail["counts"] = values["counts"]
    return _trial(
        plan, values["shape"], "" if emulated else header["device"], run_id=run_id, arch=header["arch"], status=status,
        kernel_hash=values["kernel"], knobs=header["knobs"], reason=failed, seed=header["seed"], detail=detail,
        toolchain={name: str(header[name]) for name in ("torch", "triton", "rocm", "cuda") if name in header},
        verified="none" if "same" not in values else "emulated" if emulated else "gpu",
        bf16_identical=values.get("same"), latency_us=spread[1] if spread else None, started_at=header["at"],
    )  # fmt: skip


def _trial(plan: tuple[str, dict[str, Any]], shape: Any, device: str, *, status: str = "ok", **fields: Any) -> Trial:
    """A row; without a device it is an emulated one."""
    from mxfp4lab.config import GemmConfig
    from mxfp4lab.records import Evidence, Status, Trial

    config = GemmConfig.from_dict(plan[1])
    return Trial(
        shape=parse_shape(shape), variant=plan[0], config=config.to_dict(), config_id=config.config_id,
        evidence=Evidence.measured if device else Evidence.emulated, status=Status(status), device=device,
        regime=REGIME if device else "", generator_device="cuda", worker=WORKER, **fields,
    )  # fmt: skip


# the server's benchmark lines -----------------------------------------------------------------------------------------


def _benchmark_rows(
    text: str, given: str | None, submission: str | Path | None, device: str, run_id: str, refused: list[str]
) -> Iterator[Trial]:  # fmt: skip
    """One row per spec line that is followed by mean, error, best and worst."""
    lines = text.splitlines()
    specs = [i for i, line in enumerate(lines) if _SPEC.search(line) and MARK not in line]
    named = re.search(r"GPU:\s*`?([^`\n]+?)`?\s*$", text, re.M)
    device = device or (named[1] if named else "")
    for place, start in enumerate(specs):
        body = "\n".join(lines[start : min(start + 4, *specs[place + 1 :], len(lines))])
        times = [float(number) * _UNITS[unit] for number, unit in re.findall(_TIME, body)]
        mean = re.search(rf"([0-9.]+)\s*±\s*{_TIME}", body)
        if mean is None or len(times) < 3:
            continue  # a test's spec line, or a failed case
        if given is None:
            raise ValueError("the report holds benchmark lines: name the file that was submitted with --submission")
        if not device:
            raise ValueError("the report does not name its GPU: give --device, for example 'AMD Instinct MI355X'")
        m, n, k, seed = map(int, _SPEC.search(body).groups())
        plans = [(v, c) for shape, v, c, _ in _plan_lines(given) if shape == (m, n, k)]
        if len(plans) != 1:
            refused.append(f"line {start + 1}: {submission} has {len(plans)} plans for {m}x{n}x{k}, not one: export it "
                           "with --candidates 1")  # fmt: skip
            continue
        unit = _UNITS[mean[3]]
        spread = {"err_us": float(mean[2]) * unit, "best_us": times[-2], "worst_us": times[-1]}
        yield _benchmark_trial((m, n, k), seed, float(mean[1]) * unit, spread, plans[0], device, run_id, body)


def _benchmark_trial(
    size: tuple[int, int, int], seed: int, mean: float, spread: dict[str, float], plan: tuple[str, dict[str, Any]],
    device: str, run_id: str, body: str,
) -> Trial:  # fmt: skip
    from mxfp4lab.config import GemmConfig, runs_on
    from mxfp4lab.gfx950 import plan_hash
    from mxfp4lab.plan import build_plan

    arch = "gfx950" if runs_on(plan[0], "gfx950") else "sm_90"
    made = build_plan(plan[0], GemmConfig.from_dict(plan[1]), size, arch)
    detail = {"line": f"{zlib.crc32(body.encode()):08x}", "statistic": "mean",
              "timing": {name: round(value, 4) for name, value in spread.items()}}  # fmt: skip
    return _trial(plan, size, device, run_id=run_id, arch=arch, verified="gpu", kernel_hash=plan_hash(made),
                  latency_us=round(mean, 4), seed=seed, detail=detail)  # fmt: skip


# files that the lab wrote ---------------------------------------------------------------------------------------------


def _plan_lines(text: str) -> Iterator[tuple[tuple[int, int, int], str, dict[str, Any], str]]:
    """(shape, variant, config, the line above) of every plan that a file of the lab says in its table."""
    lines, shape = text.splitlines(), None
    for place, line in enumerate(lines):
        if said := re.match(r"    \((\d+), (\d+), (\d+)\): \[\(", line):
            shape = tuple(map(int, said.groups()))
        if shape is None or not (said := re.match(r"        # (\w+) (\{.*)", line)):
            continue
        config, after = said[2], place + 1
        while after < len(lines) and (more := re.match(r"        #   (.*)", lines[after])):
            config, after = f"{config} {more[1]}", after + 1
        values = _json_object(config)
        if values is not None:
            yield shape, said[1], values, lines[place - 1]


def _json_object(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _read(path: str | Path) -> str:
    if not Path(path).is_file():
        raise ValueError(f"{str(path)!r}: no such file")
    return read_bounded(path, MAX_REPORT_BYTES)


# the command ----------------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `records`."""
    from mxfp4lab.cli.common import add_json_argument

    parser.add_argument("what", choices=["import"], help="import: append the rows of a report")
    parser.add_argument("report", metavar="REPORT", help="copied text, or popcorn-cli's output file")
    parser.add_argument("--submission", metavar="FILE", help="the file that was submitted (for benchmark lines)")
    parser.add_argument("--device", default="", help="of benchmark lines, where the report does not name its GPU")
    parser.add_argument("--out", default="outputs", help="folder of records, from the repository or absolute")
    add_json_argument(parser)


def main(args: argparse.Namespace) -> int:
    """Run `records`; 0 everything is in the records, 1 lines were refused.

    Raises:
        ValueError: a bad request; one line.
    """
    from mxfp4lab.cli.common import answer
    from mxfp4lab.notebook import kinds

    done = import_report(args.report, kinds.folder().read("out", args.out), args.submission, args.device)
    data = {"added": len(done.added), "known": done.known, "refused": done.refused}
    answer(args, {**data, "path": str(done.path) if done.path else None}, str(done))
    return 1 if done.refused else 0
