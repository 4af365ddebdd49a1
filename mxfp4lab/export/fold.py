"""Kernels as a person would have written them for these configs: branches that no config takes are gone.

A kernel here serves every variant; an exported file serves a few configs. Given all values that the compile-time
constants of a kernel take in the file, this follows them through the kernel and the helpers it calls, drops what is
never reached, writes constants that never change as literals, and keeps the comments of what stays.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import libcst as cst
import libcst.matchers as m

from mxfp4lab.export.evaluate import UNKNOWN, evaluate
from mxfp4lab.export.merge import bind, merge
from mxfp4lab.export.prose import is_docstring, trimmed
from mxfp4lab.export.reach import Constants, Walker
from mxfp4lab.export.rewrite import CallTrimmer, Rewriter, without_parameters
from mxfp4lab.export.sources import Source, is_kernel, source_of
from mxfp4lab.export.tidy import (
    drop_unused,
    forwarded,
    has_effect,
    inline_trivial,
    single_assignments,
    wrapped_call,
)
from mxfp4lab.export.unroll import unrolled
from mxfp4lab.export.walk import names, names_bound

PAGE = 80  # lines that nobody would write twice


def stays_a_parameter(name: str, value: object) -> bool:
    """Tile sizes and counts belong into the table, flags and widths into the text."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return False
    return not (isinstance(value, int) and (value in (0, 1) or name.endswith("_BITS"))) or name.startswith("BLOCK")


@dataclass
class Function:
    """A kernel or helper on its way into the file.

    Attributes:
        function: the `triton.jit` object; source: its text; node: the definition as it now reads.
        environments: every combination of known constants with which it is entered.
        folded: parameters that always have one value and are written out.
        is_entry: launched from the host: its parameters are also the host's business.
        described: names that its docstring and comments may speak of, from before anything was folded.
        inner: the body that it took over, if it was a thin entry point, and the constants that it passed on.
    """

    function: Any
    source: Source
    node: cst.FunctionDef
    is_entry: bool
    described: set[str]
    inner: tuple[tuple[str, str], Constants] | None = None
    environments: list[Constants] = field(default_factory=list)
    folded: Constants = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.node.name.value

    def parameters(self) -> list[str]:
        """Names of its parameters as they now are."""
        return [p.name.value for p in self.node.params.params]


class Folder:
    """Folds a set of entry kernels and everything they call.

    Args:
        entries: kernel -> every combination of its constants; a constant that follows the shape is absent from them.
        shared: bodies (their `Source.key`) that stay functions of their own below thin entry points.
    """

    def __init__(
        self, entries: Iterable[tuple[Any, Sequence[Constants]]], shared: Collection[tuple[str, str]] = ()
    ) -> None:
        self._shared = shared
        self._functions: dict[tuple[str, str], Function] = {}
        for function, environments in entries:
            entry = self._entry(function)
            entry.environments = [dict(e) for e in environments]
            self._functions[entry.source.key[0], entry.name] = entry
        self._discover()
        for item in self._functions.values():
            item.folded = self._constant(item)
        for item in self._functions.values():
            item.node = Rewriter(self, item).rewrite()
        self._tidy()
        self._trim()

    def functions(self) -> list[Function]:
        """Helpers before the kernels that call them, in the order of their modules."""
        order: list[Function] = []

        def visit(item: Function) -> None:
            if item in order:
                return
            for other in sorted(self.called_by(item), key=lambda f: (f.source.key[0], f.source.position)):
                visit(other)
            order.append(item)

        for item in [f for f in self._functions.values() if f.is_entry]:
            visit(item)
        return order

    def called_by(self, item: Function) -> list[Function]:
        """The helpers that a function calls as it now reads."""
        found = []
        for name in dict.fromkeys(names(item.node)):
            other = self.lookup(item, name)
            if other is not None and other not in found and other is not item:
                found.append(other)
        return found

    def lookup(self, item: Function, name: str) -> Function | None:
        """The helper that a name in a function's body means."""
        target = item.source.globals.get(name)
        if is_kernel(target):
            return self._functions.get((source_of(target).key[0], name))
        if target is not None:
            return None
        # A call that stood in a wrapper, in another module.
        return next((f for f in self._functions.values() if f.name == name and not f.is_entry), None)

    # finding out what reaches what ------------------------------------------------------------------------------------

    def doubles(self) -> set[tuple[str, str]]:
        """Bodies that several entry points took over, and of which they still have a page in common."""
        taken = [item for item in self.functions() if item.inner is not None]
        found = set()
        for one, other in itertools.combinations(taken, 2):
            if one.inner[0] == other.inner[0]:  # type: ignore[index]
                texts = [cst.Module(list(item.node.body.body)).code.splitlines() for item in (one, other)]
                matcher = difflib.SequenceMatcher(None, *texts, autojunk=False)
                if sum(block.size for block in matcher.get_matching_blocks()) > PAGE:
                    found.add(one.inner[0])  # type: ignore[index]
        return found

    def _entry(self, function: Any) -> Function:
        """A kernel; one whose body is a single call of another takes over that one's body."""
        source = source_of(function)
        node = source.node
        described, took = names_bound(node), None
        body = [s for s in node.body.body if not is_docstring(s)]
        if len(body) == 1 and m.matches(body[0], m.SimpleStatementLine(body=[m.Expr(value=m.Call(func=m.Name()))])):
            call = body[0].body[0].value
            target = source.globals.get(call.func.value)
            inner = source_of(target) if is_kernel(target) else None
            if inner is not None and inner.key not in self._shared:
                bound = bind(inner.node, call)
                took = (inner.key, {n: v for n, e in bound.items() if (v := evaluate(e, {})) is not UNKNOWN})
                node = merge(node, inner.node, bound)
                described |= names_bound(inner.node)
                source = Source(source.key, source.node, inner.module, source.position, inner.globals)
        return Function(function, source, node, True, described, took)

    def _discover(self) -> None:
        """Follow the constants of the entries into every helper, until nothing new is entered."""
        todo = list(self._functions.values())
        while todo:
            item = todo.pop()
            for target, environments in Walker(item).calls():
                source = source_of(target)
                helper = self._functions.get(source.key)
                if helper is None:
                    helper = self._functions[source.key] = Function(
                        target, source, source.node, False, names_bound(source.node)
                    )
                new = [e for e in environments if e not in helper.environments]
                if new:
                    helper.environments += new
                    if helper not in todo:
                        todo.append(helper)

    @staticmethod
    def _constant(item: Function) -> Constants:
        """Parameters that have one known value wherever the function is entered."""
        if not item.environments:
            return {}
        folded = {}
        for name, value in item.environments[0].items():
            values = [e.get(name, UNKNOWN) for e in item.environments]
            if value is UNKNOWN or any(v is UNKNOWN or type(v) is not type(value) or v != value for v in values):
                continue
            if not stays_a_parameter(name, value):
                folded[name] = value
        return folded

    def _with_effect(self) -> set[str]:
        """Helpers that store or wait, by themselves or in what they call."""
        found: set[str] = set()
        while True:
            more = {f.name for f in self._functions.values() if f.name not in found and has_effect(f.node.body, found)}
            if not more:
                return found
            found |= more

    def _tidy(self) -> None:
        """Remove what folding left over, until nothing more goes."""
        while True:
            before = {key: item.node for key, item in self._functions.items()}
            helpers = self._with_effect()
            for item in self._functions.values():
                item.node = drop_unused(forwarded(single_assignments(unrolled(item.node))), helpers)
            live = self.functions()
            trivial, wrappers = {}, {}
            for item in live:
                if not item.is_entry and (position := inline_trivial(item.node)) is not None:
                    trivial[item.name] = position
                call = None if item.is_entry else wrapped_call(item.node)
                if call is not None and self.lookup(item, call.func.value) is not None:
                    wrappers[item.name] = call
            unused = {}
            for item in live:
                mentioned = set(names(item.node.body))
                unused[item.name] = [i for i, name in enumerate(item.parameters()) if name not in mentioned]
            for item in live:
                item.node = item.node.visit(CallTrimmer(self, item, unused, trivial, wrappers))
            for item in live:
                item.node = without_parameters(item.node, unused[item.name])
            for key, item in list(self._functions.items()):
                if item not in live:
                    del self._functions[key]
            if all(item.node is before.get(key) or item.node.deep_equals(before[key])
                   for key, item in self._functions.items()):  # fmt: skip
                return

    def _trim(self) -> None:
        """What folding took away is not spoken of any more."""
        live = self.functions()
        present = {item.name for item in live}
        for item in live:
            helpers = {name for name, target in item.source.globals.items() if is_kernel(target)}
            gone = item.described - names_bound(item.node)
            item.node = trimmed(item.node, gone | (helpers - present), _values(item, gone))


def _values(item: Function, gone: set[str]) -> dict[str, int | bool]:
    """What each number and each flag that is gone was wherever the function is entered."""
    found: dict[str, int | bool] = {}
    passed = item.inner[1] if item.inner is not None else {}
    for name in gone:
        values = [e.get(name, passed.get(name)) for e in item.environments]
        if values and all(type(v) in (int, bool) and v == values[0] for v in values):
            found[name] = values[0]  # type: ignore[assignment]
    return found
