"""Probes: what is written, what they print, and how a report becomes trials, once and only if it is whole."""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path

import pytest

from mxfp4lab import cli
from mxfp4lab.check import check_submission
from mxfp4lab.check.cases import Log
from mxfp4lab.config import GemmConfig
from mxfp4lab.export import export_submission, import_report, lint_source, write_probe
from mxfp4lab.records import Evidence, Status, read_all_trials
from mxfp4lab.shapes import Shape

SMALL = Shape(8, 96, 512)


def line(content: dict, checksum: int = 0) -> str:
    text = json.dumps(content, separators=(",", ":"))
    return f"mxfp4lab-probe {text} {zlib.crc32(text.encode(), checksum):08x}"


def report_of(probe: str, **spreads: object) -> list[str]:
    """What a probe's run prints on a box, its kernels measured one after another."""
    identity = re.search(r'PROBE = \{"id": "([0-9a-f]{12})"', probe)[1]
    labels = re.findall(r'\("([0-9a-f]{12})", "([0-9a-f]{16})",', probe)
    head = {"probe": identity, "device": "AMD Instinct MI355X", "arch": "gfx950", "torch": "2.9.0", "triton": "3.6.0",
            "rocm": "7.1", "knobs": {"TRITON_DEFAULT_FP_FUSION": "1"}, "seed": 42, "overwrite": 2 << 30,
            "configs": len(labels), "at": "2026-12-01T10:00:00Z"}  # fmt: skip
    lines = [line(head)]
    checksum = int(lines[0][-8:], 16)
    for place, (config, kernel) in enumerate(labels):
        row = {"config": config, "kernel": kernel, "shape": str(SMALL), "same": 1.0, "n": 30, "null": 5.81}
        row["us"] = [6.0 + place, 6.2 + place, 6.5 + place]
        lines.append(line(row, checksum))
    return lines


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("lab")
    return out, write_probe(out / "probe.py", [SMALL], configs=4, out=out)


def test_a_probe_is_a_submission_that_the_server_takes(written: tuple[Path, str]) -> None:
    _, text = written
    assert [f for f in lint_source(text) if f.severity == "error"] == []
    assert text.startswith("#!POPCORN leaderboard amd-mxfp4-mm\n#!POPCORN gpu MI355X\n")
    assert len(re.findall(r'\("[0-9a-f]{12}", "[0-9a-f]{16}",', text)) == 4
    assert max(map(len, report_of(text)[1:])) <= 200


def test_it_probes_in_test_mode_and_is_ordinary_in_timed_modes(written: tuple[Path, str], tmp_path: Path) -> None:
    """On the emulator it prints counts, and no times; the records take them as emulated."""
    _, text = written
    path = tmp_path / "probe.py"
    assert "TEST_SHAPES = ((8, 2112, 7168), " in text
    text = text.replace("TEST_SHAPES = ((8, 2112, 7168), ", "TEST_SHAPES = ((8, 96, 512), ")  # a small first case
    path.write_text(text.replace("OVERWRITE_BYTES = 2 << 30", "OVERWRITE_BYTES = 1 << 20"))
    timed = check_submission(path, "leaderboard", "emulator", ["5,160,448"], log=Log())
    assert timed.passed and "mxfp4lab-probe" not in timed.printed, timed.summary()
    report = check_submission(path, "test", "emulator", [SMALL, "5,160,448"], log=Log())
    assert report.passed, report.summary()
    assert report.printed.count("mxfp4lab-probe") == 5 and '"us"' not in report.printed
    (tmp_path / "report.txt").write_text(report.printed)
    rows = import_report(tmp_path / "report.txt", tmp_path / "lab", path).added
    assert {(row.evidence, row.latency_us, row.verified) for row in rows} == {(Evidence.emulated, None, "emulated")}
    assert {row.bf16_identical for row in rows} == {1.0} and rows[0].detail["counts"]["launches"] == 1


def test_a_report_becomes_measured_trials_once(written: tuple[Path, str], tmp_path: Path) -> None:
    out, text = written
    report, lines = tmp_path / "report.txt", report_of(text)
    report.write_text("Running...\n```\n\x1b[32m" + "\n".join(lines) + "\x1b[0m\n```\n[exit 0]\n")
    first, again = import_report(report, out), import_report(report, out)
    assert (len(first.added), first.refused) == (4, []) and (len(again.added), again.known) == (0, 4)
    trials = [t for t in read_all_trials(out, SMALL)[0].values() if t.evidence is Evidence.measured]
    assert sorted(t.latency_us for t in trials) == [6.2, 7.2, 8.2, 9.2]
    best = min(trials, key=lambda t: t.latency_us)
    assert (best.device, best.worker, best.regime, best.arch) == (
        "AMD Instinct MI355X",
        "probe",
        "leaderboard",
        "gfx950",
    )
    assert best.toolchain == {"torch": "2.9.0", "triton": "3.6.0", "rocm": "7.1"} and best.verified == "gpu"
    assert best.detail["timing"] == {"p20_us": 6.0, "p50_us": 6.2, "p80_us": 6.5, "n": 30, "floor_us": 5.81}
    assert GemmConfig.from_dict(best.config).config_id == best.config_id


def test_what_failed_on_the_box_is_a_row(written: tuple[Path, str], tmp_path: Path) -> None:
    out, text = written
    lines = report_of(text)
    row = json.loads(lines[1].split(" ", 1)[1].rsplit(" ", 1)[0])
    shared = {name: row[name] for name in ("config", "kernel", "shape")}
    checksum = int(lines[0][-8:], 16)
    failures = {"C is wrong": Status.incorrect, "CompilationError: at 3:4": Status.compile_error,
                "RuntimeError: HIP error": Status.runtime_error}  # fmt: skip
    for failed, status in failures.items():
        (tmp_path / "r.txt").write_text("\n".join([lines[0], line(shared | {"failed": failed}, checksum)]))
        (trial,) = import_report(tmp_path / "r.txt", tmp_path / failed[:3], out / "probe.py").added
        assert (trial.status, trial.reason, trial.latency_us) == (status, failed, None)


def test_torn_edited_and_foreign_lines_are_refused_by_number(written: tuple[Path, str], tmp_path: Path) -> None:
    out, text = written
    lines, report = report_of(text), tmp_path / "report.txt"
    other_head = lines[0].split(" ", 1)[1].rsplit(" ", 1)[0].replace("42", "43")
    foreign = line(json.loads(lines[2].split(" ", 1)[1].rsplit(" ", 1)[0]), zlib.crc32(other_head.encode()))
    damaged = [lines[1], lines[0], lines[1].replace("6.2", "1.2"), lines[2][:90], foreign, lines[4]]
    report.write_text("\n".join(damaged))
    done = import_report(report, tmp_path / "lab", out / "probe.py")
    assert [said.split(":")[0] + said.split(":")[1] for said in done.refused] == [
        "line 1 foreign", "line 3 edited, or of another report", "line 4 torn", "line 5 edited, or of another report"
    ]  # fmt: skip
    assert [t.latency_us for t in done.added] == [9.2]
    report.write_text("\n".join([lines[0].replace("MI355X", "MI300X"), lines[1]]))
    assert len(import_report(report, tmp_path / "lab", out / "probe.py").refused) == 2


def test_a_probe_that_was_written_elsewhere_is_named(written: tuple[Path, str], tmp_path: Path) -> None:
    (tmp_path / "report.txt").write_text("\n".join(report_of(written[1])))
    with pytest.raises(ValueError, match=r"was not written here .* name its file with --submission"):
        import_report(tmp_path / "report.txt", tmp_path)


BENCHMARK = """## Ranked Benchmark:
* GPU: `AMD Instinct MI355X`
```
m: 8; n: 96; k: 512; seed: 42
 \u23f1 6.25 \u00b1 0.012 \u00b5s
 \u26a1 5.94 \u00b5s \U0001f40c 12.3 \u00b5s

m: 5; n: 160; k: 448; seed: 1
 \u23f1 1.5 \u00b1 0.2 ms
 \u26a1 900 \u00b5s \U0001f40c 2 ms
```
"""


def test_the_servers_benchmark_lines_become_a_row_a_shape(tmp_path: Path) -> None:
    file, report = tmp_path / "s.py", tmp_path / "report.txt"
    export_submission({SMALL: ("sliced_preshuffled", None)}, file)
    report.write_text(BENCHMARK)
    done = import_report(report, tmp_path, file)
    (trial,) = done.added
    assert (trial.shape, trial.variant, trial.latency_us, trial.seed) == (SMALL, "sliced_preshuffled", 6.25, 42)
    assert trial.detail["timing"] == {"err_us": 0.012, "best_us": 5.94, "worst_us": 12.3}
    assert (trial.detail["statistic"], trial.device) == ("mean", "AMD Instinct MI355X")
    assert done.refused == [f"line 8: {file} has 0 plans for 5x160x448, not one: export it with --candidates 1"]
    assert import_report(report, tmp_path, file).known == 1
    with pytest.raises(ValueError, match="name the file that was submitted with --submission"):
        import_report(report, tmp_path)
    report.write_text(BENCHMARK.replace("* GPU: `AMD Instinct MI355X`", ""))
    with pytest.raises(ValueError, match="give --device"):
        import_report(report, tmp_path, file)


def test_the_commands(tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    probe = tmp_path / "p.py"
    request = ["probe", "--shape", "8,96,512", "--configs", "2", "--out", str(tmp_path), str(probe)]
    assert cli.run(request) == 0 and "records import report.txt" in capfd.readouterr().out
    report = tmp_path / "r.txt"
    report.write_text("\n".join(report_of(probe.read_text())) + "\nmxfp4lab-probe {")
    assert cli.run(["records", "import", str(report), "--out", str(tmp_path), "--json"]) == 1
    said = json.loads(capfd.readouterr().out)
    assert (said["added"], said["known"], len(said["refused"])) == (2, 0, 1)
    (tmp_path / "empty").touch()
    table = [
        (["probe", "--shape", "8,96,512", "x.txt"], "a probe is a .py file"),
        (["probe", "--shape", "8,96", "x.py"], "accepted forms"),
        (["probe", "--shape", "8,96,512", "--configs", "67", "x.py"], "configs='67'; allowed"),
        (["probe", "--shape", "8,96,512", "--seconds", "251", "x.py"], "seconds='251'; allowed"),
        (["probe", "--shape", "8,96,512", "--seconds", "3", "x.py"], "configs need about"),
        (["records", "import", "none.txt"], "no such file"),
        (["records", "import", str(tmp_path / "empty")], "holds no line of a probe"),
    ]
    for arguments, expected in table:
        assert cli.run([*arguments, "--out", str(tmp_path)]) == 2
        out, err = capfd.readouterr()
        assert expected in err and err.count("\n") == 1 and out == ""
