"""The word that the task's server refuses, in plain text and in every disguise that constants allow.

The server looks for the six letters anywhere in the file, whatever their case, comments included
(gpu-mode/kernelbot, pull request 374). A file that spells the word by arithmetic passes there and breaks the rule all
the same, so strings are folded here before they are looked at.
"""

from __future__ import annotations

import ast
import base64
import binascii
import codecs
import re
import unicodedata
from collections.abc import Iterator

from mxfp4lab.export.findings import Finding, error
from mxfp4lab.export.values import dotted

WORD = "stream"
_MAX_TEXT = 1 << 16
_REFLECTED = {"torch", "torch.cuda", "cuda", "torch.accelerator", "torch.xpu", "triton", "driver"}


def server_refusals(source: str) -> list[Finding]:
    """Lines that the server's own search finds."""
    return [
        error(number, "word", f"contains {WORD!r}, in any form refused by the task's server: {line.strip()[:80]!r}")
        for number, line in enumerate(source.splitlines(), 1)
        if WORD in line.lower()
    ]


def disguises(tree: ast.Module, source: str) -> list[Finding]:
    """Places that spell the word without writing it, and names that are computed where it could hide."""
    found: list[Finding] = []
    for number, line in enumerate(source.splitlines(), 1):
        if WORD not in line.lower() and WORD in unicodedata.normalize("NFKC", line).lower():
            found.append(error(number, "disguise", f"spells {WORD!r} with other letters that Python reads as the same"))
    folder = _Folder(tree)
    plain = {f.line for f in server_refusals(source)}
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.expr) and line not in plain:
            value = folder.text(node)
            if value is not None and WORD in value.lower():
                found.append(error(line, "disguise", f"builds the word {WORD!r} out of pieces"))
                plain.add(line)
        if isinstance(node, ast.Call):
            found += _computed_name(node, folder)
        if isinstance(node, (ast.Subscript, ast.Call, ast.comprehension)):
            found += _reflection(node)
    return found


def _computed_name(node: ast.Call, folder: _Folder) -> Iterator[Finding]:
    name = dotted(node.func)
    if name in (
        "getattr",
        "setattr",
        "delattr",
        "operator.attrgetter",
        "attrgetter",
        "methodcaller",
        "operator.methodcaller",
    ):
        position = 0 if "getter" in name or "caller" in name else 1
        if len(node.args) > position and folder.text(node.args[position]) is None:
            target = dotted(node.args[0]) if position else ""
            if not position or target in _REFLECTED or target.split(".")[0] in ("torch", "triton"):
                yield error(node.lineno, "computed-name", f"{name} with a computed name: write the attribute out")
    if name in ("eval", "exec", "compile", "__import__", "importlib.import_module", "import_module", "globals().get"):
        literal = node.args and isinstance(node.args[0], ast.Constant)
        if name in ("eval", "exec", "compile") or not literal:
            yield error(node.lineno, "computed-name", f"{name} runs code that cannot be read here: write it out")


def _reflection(node: ast.AST) -> Iterator[Finding]:
    """Walking a module's names is how an attribute is reached without writing it."""
    if isinstance(node, ast.Call) and dotted(node.func) in ("vars", "dir", "inspect.getmembers") and node.args:
        target = dotted(node.args[0])
        if target in _REFLECTED or target.startswith(("torch.", "triton.")):
            yield error(
                node.lineno, "computed-name", f"{dotted(node.func)}({target}) reaches attributes without naming them"
            )
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "__dict__":
        target = dotted(node.value.value)
        if target in _REFLECTED or target.startswith(("torch.", "triton.")):
            yield error(node.lineno, "computed-name", f"{target}.__dict__ reaches attributes without naming them")


class _Unknown(Exception):
    pass


class _Folder:
    """Evaluates expressions of constants: strings, bytes, integers, and the ways to glue them together.

    Args:
        tree: the module; names that are assigned exactly once to a constant expression are known.
    """

    def __init__(self, tree: ast.Module) -> None:
        assigned: dict[str, list[ast.expr]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        assigned.setdefault(target.id, []).append(node.value)
            elif isinstance(node, (ast.AugAssign, ast.For, ast.NamedExpr)) and isinstance(node.target, ast.Name):
                assigned.setdefault(node.target.id, []).extend([node, node])  # more than once: unknown
        self._names = {name: values[0] for name, values in assigned.items() if len(values) == 1}
        self._depth = 0

    def text(self, node: ast.expr) -> str | None:
        """The string that an expression evaluates to, or None where that cannot be told."""
        try:
            value = self._value(node, {})
        except (
            _Unknown,
            ValueError,
            TypeError,
            IndexError,
            KeyError,
            OverflowError,
            LookupError,
            AttributeError,
            binascii.Error,
            RecursionError,
        ):
            return None
        if isinstance(value, bytes):
            return value.decode("latin-1")
        return value if isinstance(value, str) else None

    def _value(self, node: ast.AST, scope: dict[str, object]):
        self._depth += 1
        try:
            if self._depth > 60:
                raise _Unknown
            value = self._evaluate(node, scope)
        finally:
            self._depth -= 1
        if isinstance(value, (str, bytes, list, tuple)) and len(value) > _MAX_TEXT:
            raise _Unknown
        return value

    def _evaluate(self, node: ast.AST, scope: dict[str, object]):
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes, int)):
            return node.value
        if isinstance(node, ast.Name):
            if node.id in scope:
                return scope[node.id]
            if node.id in self._names:
                return self._value(self._names[node.id], {})
            raise _Unknown
        if isinstance(node, (ast.List, ast.Tuple)):
            return [self._value(e, scope) for e in node.elts]
        if isinstance(node, ast.JoinedStr):
            return "".join(str(self._value(v, scope)) for v in node.values)
        if isinstance(node, ast.FormattedValue):
            if node.format_spec is not None:
                return format(self._value(node.value, scope), self._value(node.format_spec, scope))
            return self._value(node.value, scope)
        if isinstance(node, ast.BinOp):
            return self._binary(node, scope)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._value(node.operand, scope)
        if isinstance(node, ast.Subscript):
            return self._value(node.value, scope)[self._index(node.slice, scope)]
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)) and len(node.generators) == 1:
            return self._comprehension(node, scope)
        if isinstance(node, ast.Call):
            return self._call(node, scope)
        raise _Unknown

    def _binary(self, node: ast.BinOp, scope: dict[str, object]):
        left, right = self._value(node.left, scope), self._value(node.right, scope)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.BitXor):
            return left ^ right
        if isinstance(node.op, ast.Mult):
            count = left if isinstance(left, int) else right
            if abs(count) > _MAX_TEXT:
                raise _Unknown
            return left * right
        if isinstance(node.op, ast.Mod) and isinstance(left, str):
            return left % (tuple(right) if isinstance(right, list) else right)
        raise _Unknown

    def _index(self, node: ast.AST, scope: dict[str, object]):
        if isinstance(node, ast.Slice):
            return slice(
                *[None if part is None else self._value(part, scope) for part in (node.lower, node.upper, node.step)]
            )
        return self._value(node, scope)

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp, scope: dict[str, object]):
        generator = node.generators[0]
        if generator.ifs or not isinstance(generator.target, ast.Name):
            raise _Unknown
        values = self._value(generator.iter, scope)
        return [self._value(node.elt, {**scope, generator.target.id: value}) for value in list(values)[:_MAX_TEXT]]

    def _call(self, node: ast.Call, scope: dict[str, object]):
        arguments = [
            self._value(a, scope) for a in node.args if not isinstance(a, ast.Name) or a.id not in ("chr", "str")
        ]
        name = dotted(node.func)
        if name == "map" and node.args and isinstance(node.args[0], ast.Name) and node.args[0].id == "chr":
            return [chr(c) for c in arguments[0]]
        simple = {
            "chr": chr,
            "str": str,
            "bytes": bytes,
            "bytearray": bytes,
            "ord": ord,
            "list": list,
            "reversed": lambda v: list(v)[::-1],
            "tuple": tuple,
            "bytes.fromhex": bytes.fromhex,
            "base64.b64decode": base64.b64decode,
            "b64decode": base64.b64decode,
            "codecs.decode": codecs.decode,
            "binascii.unhexlify": binascii.unhexlify,
            "int": int,
        }
        if name in simple and not node.keywords:
            if name in ("bytes", "bytearray") and isinstance(arguments[0], int):
                raise _Unknown
            return simple[name](*arguments)
        if isinstance(node.func, ast.Attribute) and not node.keywords:
            owner = self._value(node.func.value, scope)
            if node.func.attr in (
                "join",
                "replace",
                "lower",
                "upper",
                "strip",
                "lstrip",
                "rstrip",
                "format",
                "decode",
                "encode",
                "title",
                "capitalize",
                "swapcase",
                "removeprefix",
                "removesuffix",
                "translate",
            ) and isinstance(owner, (str, bytes)):
                if node.func.attr == "format" and re.search(r"\{[^}]*[:!.\[]", owner):
                    raise _Unknown
                return getattr(owner, node.func.attr)(*arguments)
        raise _Unknown
