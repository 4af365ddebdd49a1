"""Which constants reach which code: environments followed through branches, locals and calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import libcst as cst

from mxfp4lab.export.evaluate import UNKNOWN, evaluate
from mxfp4lab.export.merge import bind
from mxfp4lab.export.sources import constexpr_parameters, is_kernel, source_of
from mxfp4lab.export.walk import named_calls, names, nodes, targets

if TYPE_CHECKING:
    from mxfp4lab.export.fold import Function

Constants = dict[str, object]


class Walker:
    """Visits a function with its environments and reports every call of a kernel with the constants it passes."""

    def __init__(self, item: Function) -> None:
        self._item = item
        self._found: list[tuple[Any, list[Constants]]] = []
        self._once = assigned_once(item.node)

    def calls(self) -> list[tuple[Any, list[Constants]]]:
        self._block(self._item.node.body.body, [dict(e) for e in self._item.environments])
        return self._found

    def _block(self, statements: Sequence[cst.BaseStatement], environments: list[Constants]) -> None:
        for statement in statements:
            if isinstance(statement, cst.If):
                self._if(statement, environments)
            elif isinstance(statement, (cst.For, cst.While, cst.With)):
                self._expressions(statement.with_changes(body=cst.IndentedBlock([])), environments)
                self._block(statement.body.body, environments)
            elif isinstance(statement, cst.SimpleStatementLine):
                self._expressions(statement, environments)
                bind_locals(statement, environments, self._once)

    def _if(self, node: cst.If, environments: list[Constants]) -> None:
        self._expressions(node.test, environments)
        taken, skipped, _ = partition(node.test, environments)
        if taken:
            self._block(node.body.body, [dict(e) for e in taken])
        if skipped and node.orelse is not None:
            if isinstance(node.orelse, cst.If):
                self._if(node.orelse, skipped)
            else:
                self._block(node.orelse.body.body, [dict(e) for e in skipped])

    def _expressions(self, node: cst.CSTNode, environments: list[Constants]) -> None:
        calls = list(named_calls(node))
        called = {call.func.value for call in calls}
        for name in names(node):
            target = self._item.source.globals.get(name)
            if is_kernel(target) and name not in called:
                self._found.append((target, [{}]))  # handed over as a value, as the combine function of a reduce is
        for call in calls:
            target = self._item.source.globals.get(call.func.value)
            if not is_kernel(target):
                continue
            bound = bind(source_of(target).node, call)
            constants = constexpr_parameters(target)
            entered = [{n: evaluate(v, e) for n, v in bound.items() if n in constants} for e in environments]
            self._found.append((target, [{n: v for n, v in e.items() if v is not UNKNOWN} for e in _distinct(entered)]))


def _distinct(environments: list[Constants]) -> list[Constants]:
    found: list[Constants] = []
    for environment in environments:
        if environment not in found:
            found.append(environment)
    return found


def partition(test: cst.BaseExpression, environments: list[Constants]) -> tuple[list[Constants], list[Constants], bool]:
    """Environments that may take the branch, those that may not take it, and whether every one is decided."""
    taken, skipped, decided = [], [], True
    for environment in environments:
        value = evaluate(test, environment)
        if value is UNKNOWN:
            decided = False
            taken.append(environment)
            skipped.append(environment)
        elif value:
            taken.append(environment)
        else:
            skipped.append(environment)
    return taken, skipped, decided


def assigned_once(node: cst.FunctionDef) -> set[str]:
    counts: dict[str, int] = {p.name.value: 1 for p in node.params.params}
    for target in nodes(node.body, cst.AssignTarget, cst.AugAssign, cst.AnnAssign, cst.For):
        for name in targets(target.target):
            counts[name] = counts.get(name, 0) + 1
    return {name for name, count in counts.items() if count == 1}


def bind_locals(statement: cst.SimpleStatementLine, environments: list[Constants], once: set[str]) -> None:
    """Remember a local that is assigned once, to something known."""
    for part in statement.body:
        target = None
        if isinstance(part, cst.Assign) and len(part.targets) == 1:
            target = part.targets[0].target
        elif isinstance(part, cst.AnnAssign) and part.value is not None:
            target = part.target
        if isinstance(target, cst.Name) and target.value in once:
            for environment in environments:
                value = evaluate(part.value, environment)
                if value is not UNKNOWN:
                    environment[target.value] = value
