"""Loops of one pass written out, and tuples that then hold one value written as that value.

A kernel that makes several tiles collects them in tuples, one entry a pass. Where a file makes one tile, a person would
have written neither the loop nor the tuple.
"""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst
import libcst.matchers as m

from mxfp4lab.export.simplify import Substitute
from mxfp4lab.export.walk import names, nodes, targets

_EMPTY = m.Tuple(elements=[])
_SINGLE = m.Tuple(elements=[m.Element()])


def unrolled(node: cst.FunctionDef) -> cst.FunctionDef:
    """The function without loops of one pass and without tuples that only ever hold one value."""
    return _without_single_tuples(node.with_changes(body=node.body.visit(_Unroller(node))))


# loops ----------------------------------------------------------------------------------------------------------------


class _Unroller(cst.CSTTransformer):
    """`for tile in static_range(1)` becomes its body with 0 for `tile`."""

    def __init__(self, function: cst.FunctionDef) -> None:
        super().__init__()
        inside = Counter(name for loop in nodes(function.body, cst.For) for name in _bound_reads(loop))
        everywhere = Counter(names(function.body))
        self._local = {name for name in inside if inside[name] >= everywhere[name]}  # never read after its loop

    def leave_For(
        self, original_node: cst.For, updated_node: cst.For
    ) -> cst.For | cst.FlattenSentinel[cst.BaseStatement]:
        target = original_node.target
        if not _one_pass(updated_node) or not isinstance(target, cst.Name) or target.value not in self._local:
            return updated_node
        assigned = {n for t in nodes(updated_node.body, cst.AssignTarget, cst.AugAssign, cst.AnnAssign, cst.For)
                    for n in targets(t.target)}  # fmt: skip
        if target.value in assigned or any(True for _ in nodes(updated_node.body, cst.Break, cst.Continue)):
            return updated_node
        body = [s.visit(Substitute({target.value: cst.Integer("0")})) for s in updated_node.body.body]
        return cst.FlattenSentinel(with_lead(body, updated_node.leading_lines))


def _bound_reads(loop: cst.For) -> Iterator[str]:
    """Every mention of a loop's variable in the loop."""
    bound = targets(loop.target)
    return (name for name in [*names(loop.target), *names(loop.body)] if name in bound)


def _one_pass(loop: cst.For) -> bool:
    call = loop.iter
    if not isinstance(call, cst.Call) or loop.orelse is not None:
        return False
    name = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
    bounds = [argument.value for argument in call.args]
    return m.matches(name, m.Name("static_range")) and (
        m.matches(bounds[-1], m.Integer(value="1")) and (len(bounds) == 1 or m.matches(bounds[0], m.Integer(value="0")))
        and len(bounds) < 3
    )  # fmt: skip


def with_lead(statements: list[cst.BaseStatement], lines: Sequence[cst.EmptyLine]) -> list[cst.BaseStatement]:
    """Statements below the blank lines and comments that stood above what they replace."""
    if not statements or not lines:
        return statements
    first = statements[0]
    return [first.with_changes(leading_lines=[*lines, *first.leading_lines]), *statements[1:]]


# tuples of one value --------------------------------------------------------------------------------------------------


@dataclass
class _Tuple:
    """How a name that might hold a tuple of one value is assigned.

    Attributes:
        places: of its `= ()` and of its appends, as the ids of the loops around them; branches: of each append, the
            (if, arm) pairs around it.
        aliases: names that it is assigned from; good: nothing else happens to it.
    """

    empty: list[tuple[int, ...]] = field(default_factory=list)
    places: list[tuple[int, ...]] = field(default_factory=list)
    branches: list[dict[int, int]] = field(default_factory=list)
    aliases: list[str] = field(default_factory=list)
    mentions: int = 0
    good: bool = True


def _without_single_tuples(node: cst.FunctionDef) -> cst.FunctionDef:
    found: dict[str, _Tuple] = {}
    _survey(node.body.body, (), {}, found)
    taken = Counter(names(node.body))
    for name, item in found.items():
        read = sum(1 for s in nodes(node.body, cst.Subscript) if _first_of(s) == name)
        item.good = item.good and item.mentions + read == taken[name] and _one_value_a_path(item)
    while any(item.good and not all(a in found and found[a].good for a in item.aliases) for item in found.values()):
        for item in found.values():
            item.good = item.good and all(a in found and found[a].good for a in item.aliases)
    known = {*taken, *(p.name.value for p in node.params.params), *dir(builtins)}
    single: dict[str, str] = {}
    for name, item in found.items():
        if item.good:
            short = _singular(name)
            single[name] = name if short in known else short
            known.add(short)
    return node.with_changes(body=node.body.visit(_Scalar(single))) if single else node


def _survey(
    statements: Sequence[cst.BaseStatement], loops: tuple[int, ...], branches: dict[int, int], found: dict[str, _Tuple]
) -> None:
    for statement in statements:
        if isinstance(statement, cst.If):
            arm, part = 0, statement
            while part is not None:
                _survey(part.body.body, loops, branches | {id(statement): arm}, found)
                part, arm = (part.orelse if isinstance(part, cst.If) else None), arm + 1
        elif isinstance(statement, (cst.For, cst.While, cst.With)):
            _spoil(statement.target if isinstance(statement, cst.For) else None, found)
            _survey(statement.body.body, (*loops, id(statement)), branches, found)
        elif isinstance(statement, cst.SimpleStatementLine):
            for part in statement.body:
                _assignment(part, loops, branches, found)


def _assignment(
    part: cst.BaseSmallStatement, loops: tuple[int, ...], branches: dict[int, int], found: dict[str, _Tuple]
) -> None:
    if not isinstance(part, cst.Assign):
        _spoil(getattr(part, "target", None), found)
        return
    target, value = part.targets[0].target, part.value
    if len(part.targets) != 1 or not isinstance(target, cst.Name):
        for other in part.targets:
            _spoil(other.target, found)
        return
    item = found.setdefault(target.value, _Tuple())
    item.mentions += 1
    if m.matches(value, _EMPTY):
        item.empty.append(loops)
    elif m.matches(value, _SINGLE):
        item.places.append(loops)
        item.branches.append(branches)
    elif m.matches(value, m.BinaryOperation(left=m.Name(target.value), operator=m.Add(), right=_SINGLE)):
        item.mentions += 1
        item.places.append(loops)
        item.branches.append(branches)
    elif isinstance(value, cst.Name):
        item.aliases.append(value.value)
        found.setdefault(value.value, _Tuple()).mentions += 1
    else:
        item.good = False


def _spoil(target: cst.BaseExpression | None, found: dict[str, _Tuple]) -> None:
    for name in targets(target) if target is not None else []:
        found.setdefault(name, _Tuple()).good = False


def _one_value_a_path(item: _Tuple) -> bool:
    """Is it emptied once, and filled once on every path, as often as it is emptied?"""
    if not item.places and not item.aliases:
        return False
    if len(item.empty) != 1:
        return not item.empty and not item.places
    if any(place != item.empty[0] for place in item.places):
        return False
    for i, one in enumerate(item.branches):
        if not all(any(one.get(k, v) != v for k, v in other.items()) for other in item.branches[:i]):
            return False
    return True


def _first_of(node: cst.Subscript) -> str:
    """`x` for `x[0]`."""
    zero = m.Subscript(value=m.Name(), slice=[m.SubscriptElement(slice=m.Index(value=m.Integer(value="0")))])
    return node.value.value if m.matches(node, zero) else ""


def _singular(name: str) -> str:
    return f"{name[:-3]}y" if name.endswith("ies") else name.removesuffix("s")


class _Scalar(cst.CSTTransformer):
    """Writes the value for the tuple."""

    def __init__(self, single: dict[str, str]) -> None:
        super().__init__()
        self._single = single

    def leave_Subscript(self, original_node: cst.Subscript, updated_node: cst.Subscript) -> cst.BaseExpression:
        name = self._single.get(_first_of(original_node))
        return updated_node if name is None else cst.Name(name)

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign | cst.RemovalSentinel:
        target = original_node.targets[0].target
        name = self._single.get(target.value) if isinstance(target, cst.Name) else None
        if name is None:
            return updated_node
        value = updated_node.value
        if isinstance(value, cst.Name):
            value = cst.Name(self._single.get(value.value, value.value))
        elif isinstance(value, cst.BinaryOperation):
            value = value.right.elements[0].value
        elif isinstance(value, cst.Tuple):
            value = value.elements[0].value if value.elements else cst.Name("EMPTY_TUPLE")
        return updated_node.with_changes(targets=[cst.AssignTarget(cst.Name(name))], value=value)

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        """`x = ()` goes; what was said above it is said above what follows."""
        kept: list[cst.BaseStatement] = []
        pending: list[cst.EmptyLine] = []
        for statement in updated_node.body:
            if m.matches(statement, m.SimpleStatementLine(body=[m.Assign(value=m.Name("EMPTY_TUPLE"))])):
                pending += statement.leading_lines
                continue
            kept += with_lead([statement], pending)
            pending = []
        return updated_node.with_changes(body=kept)
