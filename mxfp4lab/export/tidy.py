"""Leftovers of folding: values nobody reads, names for other names, helpers that do nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import libcst as cst
import libcst.matchers as m

from mxfp4lab.export.evaluate import evaluate
from mxfp4lab.export.prose import is_docstring
from mxfp4lab.export.simplify import Substitute
from mxfp4lab.export.walk import names, nodes, targets

_KEPT_CALLS = (
    "store", "assume", "atomic_add", "atomic_cas", "atomic_xchg", "atomic_max", "atomic_min", "device_assert",
    "device_print", "static_assert", "debug_barrier", "buffer_store", "buffer_atomic_add",
)  # fmt: skip


def drop_unused(node: cst.FunctionDef, helpers: Collection[str] = ()) -> cst.FunctionDef:
    """Remove assignments whose names are never read, until none is left.

    A load that nobody reads goes too: that is what the compiler would do.

    Args:
        helpers: names of those that do more than give a value (see `has_effect`): calls of them stay.
    """
    while True:
        reads = _reads(node)
        changed = node.visit(_Dropper(reads, helpers))
        if changed.deep_equals(node):
            return node
        node = changed


def _reads(node: cst.FunctionDef) -> Counter[str]:
    """How often each name is read (mentioned anywhere but as a plain assignment's target)."""
    reads: Counter[str] = Counter(names(node.body))
    for target in nodes(node.body, cst.AssignTarget, cst.AnnAssign):
        for name in targets(target.target):
            reads[name] -= 1
    return reads


def has_effect(node: cst.CSTNode, helpers: Collection[str] = ()) -> bool:
    """Does code do more than give a value: a store, an atomic, impure assembly, a call of one of `helpers`?"""
    for call in nodes(node, cst.Call):
        if isinstance(call.func, cst.Attribute) and (call.func.attr.value in _KEPT_CALLS or _is_impure(call)):
            return True
        if isinstance(call.func, cst.Name) and call.func.value in helpers:
            return True
    return False


def _is_impure(call: cst.Call) -> bool:
    """Is it inline assembly that must run whether or not its value is read: a wait, say?"""
    impure = m.Arg(keyword=m.Name("is_pure"), value=~m.Name("True"))
    return any(m.matches(argument, impure) for argument in call.args)


def _assumes_nothing(part: cst.BaseSmallStatement) -> bool:
    """Is it `assume(0 >= 0)`?"""
    assume = m.Expr(value=m.Call(func=m.Attribute(attr=m.Name("assume")), args=[m.Arg()]))
    return m.matches(part, assume) and evaluate(part.value.args[0].value, {}) is True


class _Dropper(cst.CSTTransformer):
    def __init__(self, reads: Mapping[str, int], helpers: Collection[str]) -> None:
        super().__init__()
        self._reads, self._helpers = reads, helpers

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        if len(updated_node.body) != 1:
            return updated_node
        part = updated_node.body[0]
        if _assumes_nothing(part):
            return cst.RemoveFromParent()
        if isinstance(part, cst.Assign):
            bound = [n for t in part.targets for n in targets(t.target)]
        elif isinstance(part, cst.AnnAssign) and part.value is not None:
            bound = targets(part.target)
        else:
            return updated_node
        if bound and all(self._reads.get(n, 0) <= 0 for n in bound) and not has_effect(part.value, self._helpers):
            return cst.RemoveFromParent()
        return updated_node

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If | cst.RemovalSentinel:
        if updated_node.body.body:
            return updated_node
        if updated_node.orelse is None:
            return cst.RemoveFromParent()
        return updated_node.with_changes(body=updated_node.body.with_changes(body=[cst.parse_statement("pass")]))

    def leave_Else(self, original_node: cst.Else, updated_node: cst.Else) -> cst.Else | cst.RemovalSentinel:
        return updated_node if updated_node.body.body else cst.RemoveFromParent()


def single_assignments(node: cst.FunctionDef) -> cst.FunctionDef:
    """Write `x` where `y = x` or `y = 3` was said and both keep their value wherever `y` is read."""
    counts: Counter[str] = Counter(p.name.value for p in node.params.params)
    for target in nodes(node.body, cst.AssignTarget, cst.AnnAssign, cst.AugAssign, cst.For):
        counts.update(targets(target.target))
    reads = _reads(node)
    settled = _settled(node, counts)
    changes: dict[str, cst.BaseExpression] = {}
    for statement in nodes(node.body, cst.Assign, cst.AnnAssign):
        target = statement.targets[0].target if isinstance(statement, cst.Assign) else statement.target
        several = isinstance(statement, cst.Assign) and len(statement.targets) != 1
        value = statement.value
        if several or not isinstance(target, cst.Name) or counts[target.value] != 1 or value is None:
            continue
        name = target.value
        alias = isinstance(value, cst.Name) and value.value not in changes and (
            counts[value.value] == 1 or name in settled)  # fmt: skip
        few = reads[name] <= 2 or m.matches(value, m.Integer(value="0"))
        small = isinstance(value, cst.Integer) and few and not _is_shadowing_use(node, name)
        if alias or small:
            changes[name] = value
    return node.with_changes(body=node.body.visit(Substitute(changes))) if changes else node


def _settled(node: cst.FunctionDef, counts: Mapping[str, int]) -> set[str]:
    """Names of `y = x` outside of loops and branches, below the last of several assignments of `x`."""
    found: dict[str, str] = {}
    for statement in node.body.body:
        bound = [n for t in nodes(statement, cst.AssignTarget, cst.AnnAssign, cst.AugAssign, cst.For)
                 for n in targets(t.target)]  # fmt: skip
        found = {alias: name for alias, name in found.items() if name not in bound}
        if m.matches(statement, m.SimpleStatementLine(body=[m.Assign(targets=[m.AssignTarget(m.Name())],
                                                                     value=m.Name())])):  # fmt: skip
            found[bound[0]] = statement.body[0].value.value
    return {alias for alias, name in found.items() if counts[name] > 0}


def forwarded(node: cst.FunctionDef) -> cst.FunctionDef:
    """Write `y = e` for `x = e` and a `y = x` right below, where nothing else asks for `x`.

    And `return f()` for `x, y = f()` and `return x, y`.
    """
    mentions = Counter(names(node.body))
    return node.with_changes(body=node.body.visit(_Forward(mentions)))


class _Forward(cst.CSTTransformer):
    def __init__(self, mentions: Mapping[str, int]) -> None:
        super().__init__()
        self._mentions = mentions

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        kept: list[cst.BaseStatement] = []
        pair = m.SimpleStatementLine(body=[m.Assign(targets=[m.AssignTarget(m.Tuple())], value=m.Call())])
        assignment = m.SimpleStatementLine(body=[m.Assign(targets=[m.AssignTarget(m.Name())])])
        for statement in updated_node.body:
            above = kept[-1] if kept else None
            if (
                above is not None
                and m.matches(above, assignment)
                and m.matches(statement, assignment)
                and isinstance(statement.body[0].value, cst.Name)
                and above.body[0].targets[0].target.value == statement.body[0].value.value
                and self._mentions[statement.body[0].value.value] == 2
                and not any(line.comment for line in statement.leading_lines)
            ):
                part = above.body[0].with_changes(targets=statement.body[0].targets)
                kept[-1] = above.with_changes(body=[part])
            elif (
                above is not None
                and m.matches(above, pair)
                and m.matches(statement, m.SimpleStatementLine(body=[m.Return(m.Tuple())]))
                and targets(above.body[0].targets[0].target) == targets(statement.body[0].value)
                and not any(line.comment for line in statement.leading_lines)
            ):
                kept[-1] = above.with_changes(body=[statement.body[0].with_changes(value=above.body[0].value)])
            else:
                kept.append(statement)
        return updated_node.with_changes(body=kept)


def _is_shadowing_use(node: cst.FunctionDef, name: str) -> bool:
    """Is something asked of the name that a plain number cannot answer (`x.to(...)`, `x[...]`)?"""
    asked = nodes(node.body, cst.Attribute, cst.Subscript)
    return any(isinstance(use.value, cst.Name) and use.value.value == name for use in asked)


def inline_trivial(node: cst.FunctionDef) -> int | None:
    """The position of the parameter that a helper hands back and does nothing else; None if it does more."""
    body = [s for s in node.body.body if not is_docstring(s)]
    if len(body) != 1 or not m.matches(body[0], m.SimpleStatementLine(body=[m.Return(value=m.Name())])):
        return None
    names = [p.name.value for p in node.params.params]
    returned = body[0].body[0].value.value
    return names.index(returned) if returned in names else None


def wrapped_call(node: cst.FunctionDef) -> cst.Call | None:
    """The call that a helper hands its parameters on to, if that is all it does; each parameter once."""
    body = [s for s in node.body.body if not is_docstring(s)]
    handed_on = m.Call(func=m.Name(), args=[m.ZeroOrMore(m.Arg(value=m.Name(), keyword=None))])
    if len(body) != 1 or not m.matches(body[0], m.SimpleStatementLine(body=[m.Return(value=handed_on)])):
        return None
    call = body[0].body[0].value
    given = [argument.value.value for argument in call.args]
    parameters = [p.name.value for p in node.params.params]
    return call if sorted(given) == sorted(parameters) and len(set(given)) == len(given) else None
