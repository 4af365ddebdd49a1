"""Is this an honest submission that the server takes? Findings with line numbers, for any file.

Errors are what the exporter refuses to write: the word that the server rejects in any form or disguise, imports of the
lab, IPython leftovers, results kept between calls, an output buffer handed out twice, work moved out of the timed call.
The analysis reads the file and runs nothing; `mxfp4lab check --mode leaderboard` sees what a file really does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mxfp4lab.export.findings import Finding, error, warning
from mxfp4lab.export.flow import Flow
from mxfp4lab.export.spelling import disguises, server_refusals
from mxfp4lab.export.values import dotted

__all__ = ["lint_source", "server_refusals"]

LEADERBOARD = "amd-mxfp4-mm"
_BACKGROUND = ("threading", "multiprocessing", "concurrent", "asyncio", "subprocess")
_CLOCK_OWNERS = ("time", "torch", "triton", "reference", "utils", "task", "sys", "builtins", "gc")
_GRAPH_NAMES = ("CUDAGraph", "make_graphed_callables")
_MAGIC = re.compile(r"^\s*(%{1,2}\w+|!\s*\w+)")


def lint_source(source: str) -> list[Finding]:
    """Everything to say about a submission file, in the order of its lines.

    Args:
        source: text of the file.
    """
    if not isinstance(source, str):
        raise ValueError(f"source: a {type(source).__name__}; allowed: the text of a file")
    findings = [*server_refusals(source), *_header(source), *_literal_names(source)]
    try:
        tree = ast.parse(source)
    except SyntaxError as problem:
        magics = [error(i, "ipython", f"a notebook magic: {line.strip()[:60]!r}")
                  for i, line in enumerate(source.splitlines(), 1) if _MAGIC.match(line)]  # fmt: skip
        findings += magics or [error(problem.lineno or 0, "syntax", f"is no Python: {problem.msg}")]
        return sorted(set(findings))
    except (MemoryError, RecursionError):
        return sorted({*findings, error(0, "syntax", "is no Python that can be read: nested too deeply")})
    except ValueError as problem:  # null bytes
        return sorted({*findings, error(0, "syntax", f"is no Python: {problem}")})
    findings += disguises(tree, source)
    findings += _notebook_leftovers(tree, source)
    findings += _imports(tree)
    findings += _out_of_call(tree)
    findings += _missing_entry(tree)
    findings += Flow(tree).findings()
    return sorted(set(findings))


def _header(source: str) -> Iterator[Finding]:
    head = []
    for line in source.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        head.append(line.strip())
    if f"#!POPCORN leaderboard {LEADERBOARD}" not in head:
        yield warning(1, "header", f"no line '#!POPCORN leaderboard {LEADERBOARD}' in the first comment block")
    if not any(line.startswith("#!POPCORN gpu ") for line in head):
        yield warning(1, "header", "no line '#!POPCORN gpu MI355X' in the first comment block")


def _literal_names(source: str) -> Iterator[Finding]:
    for number, line in enumerate(source.splitlines(), 1):
        if "gemm_a4w4_asm" in line:
            yield warning(
                number,
                "asm-name",
                "one contestant reports that the server refuses the name gemm_a4w4_asm (not confirmed)",
            )


def _notebook_leftovers(tree: ast.Module, source: str) -> Iterator[Finding]:
    for number, line in enumerate(source.splitlines(), 1):
        if re.match(r"#\s*(In\s*\[[\d ]*\]:|%%)", line):
            yield error(number, "ipython", "a cell marker of a notebook")
    for node in ast.walk(tree):
        leftover = isinstance(node, ast.Name) and node.id in ("get_ipython", "In", "Out", "_ih", "_oh")
        if leftover and isinstance(node.ctx, ast.Load) and not _is_bound(tree, node.id):
            yield error(node.lineno, "ipython", f"{node.id} exists in IPython only")
        if isinstance(node, ast.Call) and dotted(node.func) == "display" and not _is_bound(tree, "display"):
            yield error(node.lineno, "ipython", "display exists in IPython only")


def _is_bound(tree: ast.Module, name: str) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            return True
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return True
        if isinstance(node, ast.arg) and node.arg == name:
            return True
    return False


def _imports(tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules = [node.module]
        elif isinstance(node, ast.Call) and dotted(node.func).split(".")[-1] in (
            "import_module",
            "__import__",
            "find_spec",
        ):
            modules = [a.value for a in node.args[:1] if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        for module in modules:
            top = module.split(".")[0]
            if top == "mxfp4lab":
                yield error(node.lineno, "lab-import", "imports mxfp4lab, which the server does not have")
            if top in ("IPython", "ipykernel", "ipywidgets") or module.startswith("google.colab"):
                yield error(node.lineno, "ipython", f"imports {top}, a notebook's module")
            if top in _BACKGROUND:  # compiling in parallel is honest, computing C there is not: `flow` tells
                yield warning(
                    node.lineno, "outside-call", f"imports {module}: C must be computed inside the timed call"
                )
            if top in ("reference", "eval"):
                yield warning(node.lineno, "harness-import", f"imports the task's own module {module}")


def _out_of_call(tree: ast.Module) -> Iterator[Finding]:
    """Captured graphs, forks, lazy tensors, and replaced clocks: ways to have the work done when nobody looks."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Attribute) and node.attr in _GRAPH_NAMES:
            yield error(
                line,
                "outside-call",
                f"{node.attr}: a captured graph replays fixed addresses instead of this call's work",
            )
        if isinstance(node, ast.Attribute) and dotted(node) in (
            "torch.cuda.graph",
            "os.fork",
            "os.forkpty",
            "os.spawnl",
        ):
            yield error(line, "outside-call", f"{dotted(node)} moves work out of the timed call")
        if isinstance(node, ast.ClassDef) and any(
            dotted(b).split(".")[-1] in ("Tensor", "TorchDispatchMode") for b in node.bases
        ):
            yield error(
                line,
                "outside-call",
                f"class {node.name}: a tensor that computes later moves work out of the timed call",
            )
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
        )
        for target in targets:
            name = dotted(target) if isinstance(target, ast.Attribute) else ""
            if name.split(".")[0] in _CLOCK_OWNERS and name.count(".") and not name.startswith("torch.backends."):
                yield error(line, "tampering", f"replaces {name}")
        if isinstance(node, ast.Call) and dotted(node.func) == "setattr" and node.args:
            name = dotted(node.args[0])
            if name.split(".")[0] in _CLOCK_OWNERS and name:
                yield error(line, "tampering", f"replaces an attribute of {name}")
        if isinstance(node, ast.Attribute) and dotted(node) in ("sys.modules", "sys._getframe", "inspect.stack"):
            yield warning(line, "harness-import", f"{dotted(node)}: a submission needs no view of who calls it")


def _missing_entry(tree: ast.Module) -> Iterator[Finding]:
    for node in tree.body:
        names = [node.name] if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else []
        if isinstance(node, ast.Assign):
            names = [n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        if isinstance(node, (ast.ImportFrom, ast.Import)):
            names = [alias.asname or alias.name for alias in node.names]
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            names = [n.name for n in ast.walk(node) if isinstance(n, ast.FunctionDef)]
        if "custom_kernel" in names:
            return
    yield error(0, "entry", "defines no custom_kernel")
