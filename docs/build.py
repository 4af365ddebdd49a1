"""Builds the site: executed notebooks, README, API from docstrings, into outputs/site/html. No network is used.

Run by `make site`. SMOKE=1 executes the notebooks in their smallest form. What was executed before from the same
notebook is not executed again. The notebooks write into outputs/site/scratch: picks, submissions and executed notebooks
of yours stay as they are.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

REPO = Path(__file__).resolve().parents[1]
SITE = REPO / "outputs" / "site"
PAGES = {"README.md": "readme.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
API = {
    "The task": ("shapes", "task", "formats", "layouts"),
    "Configs and plans": ("config", "plan.data", "plan.variants", "plan.own"),
    "The gfx950 machine": (
        "gfx950.isa.instruction",
        "gfx950.isa.hazards",
        "gfx950.toolchain.compile",
        "gfx950.toolchain.compiled",
        "gfx950.machine.runs",
        "gfx950.machine.counts",
        "gfx950.machine.errors",
        "emulate",
    ),
    "Bits": ("quantizers", "proof"),
    "Time": ("model", "fit", "records.trial", "records.times"),
    "On a GPU": ("gpu.execute", "gpu.measure", "gpu.timing", "counters"),
    "Search": ("tune.space", "tune.start", "tune.result", "tune.pick"),
    "Submissions": ("export.submission", "export.cell", "export.lint", "export.probe", "check.check", "check.report"),
    "AMD's kernels": ("aiter.install", "aiter.quantizer", "aiter.gemm"),
    "Notebooks": ("notebook", "notebook.findings", "notebook.live", "notebook.isa_view"),
}


def main() -> int:
    """Returns 0, or 1 if a page or a link is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="notebooks in their smallest form")
    options = parser.parse_args()
    source = SITE / "source"
    shutil.rmtree(source, ignore_errors=True)
    (source / "notebooks").mkdir(parents=True)
    for notebook in sorted((REPO / "notebooks").glob("*.ipynb")):
        page = executed(notebook, options.smoke).read_text(encoding="utf-8")
        (source / "notebooks" / notebook.name).write_text(notebook_page(page), encoding="utf-8")
    for page in [*(REPO / "docs").glob("*.md"), REPO / "docs" / "conf.py"]:
        shutil.copy(page, source / page.name)
    shutil.copytree(REPO / "docs" / "_static", source / "_static")
    for place in ("images", "docs/images"):  # as docs/index.md and as README.md name them
        shutil.copytree(REPO / "docs" / "images", source / place)
    for name, page in PAGES.items():
        (source / page).write_text(repository_page(REPO / name, source), encoding="utf-8")
    (source / "api.md").write_text(api_page(), encoding="utf-8")
    html = SITE / "html"
    shutil.rmtree(html, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-W", "--keep-going", "-n"]
    command += ["-d", str(SITE / "doctrees")]
    done = subprocess.run([*command, str(source), str(html)], check=False, cwd=REPO)  # autodoc imports from here
    problems = broken_links(html)
    for problem in problems:
        print(f"site: {problem}")
    pages = len(list(html.rglob("*.html")))
    print(f"site: {pages} pages, {len(problems)} broken links: {(html / 'index.html').relative_to(REPO)}")
    return 1 if done.returncode or problems else 0


def executed(notebook: Path, smoke: bool) -> Path:
    """The notebook with its outputs; taken from an earlier build of the same notebook and code where there is one."""
    key = hashlib.sha256(notebook.read_bytes() + bytes(smoke) + code_version()).hexdigest()[:12]
    target = SITE / "executed" / f"{notebook.stem}-{key}.ipynb"
    if not target.exists():
        print(f"site: executes {notebook.name}", flush=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(".part.ipynb")
        command = [sys.executable, "-W", "ignore", "-m", "papermill", str(notebook), str(part), "--no-progress-bar"]
        command += ["--cwd", str(REPO), "--log-level", "ERROR", "-p", "out", str(SITE / "scratch")]
        command += ["-p", "smoke", "true"] if smoke else []
        subprocess.run(command, check=True)
        part.replace(target)
    return target


def notebook_page(text: str) -> str:
    """An executed notebook without what papermill put in: parameters that stand on the run card anyway."""
    content = json.loads(text)
    content["cells"] = [c for c in content["cells"] if "injected-parameters" not in c["metadata"].get("tags", [])]
    return json.dumps(content)


def code_version() -> bytes:
    """A digest of the package: outputs of other code are not shown."""
    digest = hashlib.sha256()
    for path in sorted((REPO / "mxfp4lab").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.digest()


def repository_page(path: Path, source: Path) -> str:
    """A page of the repository whose links fit the site: what is no page here becomes plain text."""

    def fit(match: re.Match[str]) -> str:
        bang, text, target = match.groups()
        if urlsplit(target).scheme or target.startswith("#"):
            return match[0]
        if target in PAGES:
            return f"{bang}[{text}]({PAGES[target]})"
        return match[0] if (source / target).exists() else text

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", fit, path.read_text(encoding="utf-8"))


def api_page() -> str:
    """Every public module under a heading, its docstrings by autodoc."""
    parts = ["# API", "", "What notebooks and other code may call, from the docstrings of the modules.", ""]
    for heading, modules in API.items():
        parts += [f"## {heading}", ""]
        for module in modules:
            name = f"mxfp4lab.{module}"
            parts += [f"### {name}", "", "```{eval-rst}", f".. automodule:: {name}", "   :members:", "```", ""]
    return "\n".join(parts)


class _Links(HTMLParser):
    """Anchors of a page, its links, and what it would load from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        target = values.get("href") or values.get("src")
        if not target:
            return
        if urlsplit(target).scheme in ("http", "https") or target.startswith("//"):
            if tag in ("script", "img", "iframe") or (tag == "link" and "stylesheet" in values.get("rel", "")):
                self.loaded.append(target)
            return
        self.links.append(target)


def broken_links(html: Path) -> list[str]:
    """Links to pages, files or anchors that are not there, and anything a page loads from the network."""
    read: dict[Path, _Links] = {}
    for path in html.rglob("*.html"):
        read[path.resolve()] = links = _Links()
        links.feed(path.read_text(encoding="utf-8"))
    found = []
    for path, links in sorted(read.items()):
        where = path.relative_to(html.resolve())
        found += [f"{where} loads {target}" for target in links.loaded]
        for link in links.links:
            parts = urlsplit(link)
            if parts.scheme:  # mailto, data
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                found.append(f"{where} links to {link}, which is not there")
            elif parts.fragment and target in read and unquote(parts.fragment) not in read[target].anchors:
                found.append(f"{where} links to {link}: no such anchor")
    return found


if __name__ == "__main__":
    sys.exit(main())
