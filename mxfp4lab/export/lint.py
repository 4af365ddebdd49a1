"""What can be told from a submission's text: findings with line numbers, for any file.

Errors are what the exporter refuses to write: the word that the server rejects, imports of the lab, IPython leftovers,
no `custom_kernel`. What a file does (results kept between calls, a buffer handed out twice, replaced clocks) is judged
by running it: `mxfp4lab check`.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass

WORD = "stream"
LEADERBOARD, GPU = "amd-mxfp4-mm", "MI355X"
_IPYTHON_NAMES = {"get_ipython", "display", "In", "Out", "_ih", "_oh"}
_IPYTHON_MODULES = {"IPython", "ipykernel", "ipywidgets"}


@dataclass(frozen=True, order=True)
class Finding:
    """One remark.

    Attributes:
        line: 1-based line of the file; 0 where the file as a whole is meant.
        rule: short name of the rule.
        severity: "error" (the file is refused) or "warning".
        message: one sentence.
    """

    line: int
    rule: str
    severity: str
    message: str

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return f"{where}{self.message} [{self.rule}]"


def lint_source(source: str) -> list[Finding]:
    """Everything to say about a submission file, in the order of its lines.

    Args:
        source: text of the file.
    """
    if not isinstance(source, str):
        raise ValueError(f"source: a {type(source).__name__}; allowed: the text of a file")
    findings = [*server_refusals(source), *header_warnings(source)]
    findings += [
        Finding(number, "asm-name", "warning",
                "one contestant reports that the server refuses the name gemm_a4w4_asm (not confirmed)")
        for number, line in enumerate(source.splitlines(), 1) if "gemm_a4w4_asm" in line
    ]  # fmt: skip
    try:
        tree = ast.parse(source)
    except SyntaxError as problem:
        line = problem.lineno or 0
        text = source.splitlines()[line - 1].strip() if 0 < line <= len(source.splitlines()) else ""
        magic = re.match(r"%{1,2}\w|!", text)
        said = f"a notebook magic: {text[:60]!r}" if magic else f"is no Python: {problem.msg}"
        findings.append(Finding(line, "ipython" if magic else "syntax", "error", said))
    except (MemoryError, RecursionError):
        findings.append(Finding(0, "syntax", "error", "is no Python that can be read: nested too deeply"))
    except ValueError as problem:  # null bytes
        findings.append(Finding(0, "syntax", "error", f"is no Python: {problem}"))
    else:
        findings += [*_notebook_leftovers(tree, source), *_imports(tree), *_entry(tree)]
    return sorted(set(findings))


def server_refusals(source: str) -> list[Finding]:
    """Lines that the server's own search finds: the word in any case, in comments too (kernelbot, pull request 374)."""
    return [
        Finding(number, "word", "error", f"contains {WORD!r}, refused by the task's server: {line.strip()[:80]!r}")
        for number, line in enumerate(source.splitlines(), 1)
        if WORD in line.lower()
    ]


def header_warnings(source: str) -> list[Finding]:
    """Whether the first comment block says the task's leaderboard and GPU, as the server reads them."""
    found: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(source.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            break
        if said := re.match(r"#!POPCORN\s+(leaderboard|gpus?)\s+(.*\S)", line):
            found[said[1].rstrip("s")] = (number, said[2])
    findings = []
    for what, wanted in (("leaderboard", LEADERBOARD), ("gpu", GPU)):
        number, value = found.get(what, (1, ""))
        if not value:
            findings.append(
                Finding(1, "header", "warning", f"no line '#!POPCORN {what} {wanted}' in the first comment block")
            )
        elif wanted not in re.split(r"[\s,;]+", value):
            findings.append(
                Finding(number, "header", "warning", f"written for {what} {value}, this task's is {wanted}")
            )
    return findings


def _notebook_leftovers(tree: ast.Module, source: str) -> Iterator[Finding]:
    for number, line in enumerate(source.splitlines(), 1):
        if re.match(r"#\s*In\s*\[[\d ]*\]:", line):
            yield Finding(number, "ipython", "error", "a cell marker of a notebook")
    bound = set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            bound |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in _IPYTHON_NAMES - bound:
            yield Finding(node.lineno, "ipython", "error", f"{node.id} exists in IPython only")


def _imports(tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules = [node.module]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            modules = [a.value for a in node.args[:1] if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        for top in {module.split(".")[0] for module in modules}:
            if top == "mxfp4lab":
                yield Finding(node.lineno, "lab-import", "error", "imports mxfp4lab, which the server does not have")
            if top in _IPYTHON_MODULES:
                yield Finding(node.lineno, "ipython", "error", f"imports {top}, a notebook's module")


def _entry(tree: ast.Module) -> Iterator[Finding]:
    """`custom_kernel` may be a function, a class, an instance, a lambda, a closure, or imported; a constant is none."""
    last: ast.AST | None = None
    for node in ast.walk(tree):
        names: set[str] = set()
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names = {node.name}
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.For)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        if "custom_kernel" in names:
            last = node
    if last is None:
        yield Finding(0, "entry", "error", "defines no custom_kernel")
    elif isinstance(getattr(last, "value", None), (ast.Constant, ast.List, ast.Dict, ast.Tuple)):
        yield Finding(last.lineno, "entry", "error", "custom_kernel is a value that cannot be called")
