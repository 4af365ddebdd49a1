"""Leftovers of folding: values nobody reads, names for other names, helpers that do nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import libcst as cst
import libcst.matchers as m

from mxfp4lab.export.walk import names, nodes, targets

_KEPT_CALLS = (
    "store", "assume", "atomic_add", "atomic_cas", "atomic_xchg", "atomic_max", "atomic_min", "device_assert",
    "device_print", "static_assert", "debug_barrier", "buffer_store", "buffer_atomic_add",
)  # fmt: skip


def drop_unused(node: cst.FunctionDef) -> cst.FunctionDef:
    """Remove assignments whose names are never read, until none is left.

    A load that nobody reads goes too: that is what the compiler would do.
    """
    while True:
        reads = _reads(node)
        changed = node.visit(_Dropper(reads))
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


def _has_effect(value: cst.BaseExpression) -> bool:
    calls = nodes(value, cst.Call)
    return any(isinstance(call.func, cst.Attribute) and call.func.attr.value in _KEPT_CALLS for call in calls)


class _Dropper(cst.CSTTransformer):
    def __init__(self, reads: Mapping[str, int]) -> None:
        super().__init__()
        self._reads = reads

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        if len(updated_node.body) != 1:
            return updated_node
        part = updated_node.body[0]
        if isinstance(part, cst.Assign):
            bound = [n for t in part.targets for n in targets(t.target)]
        elif isinstance(part, cst.AnnAssign) and part.value is not None:
            bound = targets(part.target)
        else:
            return updated_node
        if bound and all(self._reads.get(n, 0) <= 0 for n in bound) and not _has_effect(part.value):
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
    """Write `x` where `y = x` or `y = 3` was said once and neither is ever assigned again."""
    counts: Counter[str] = Counter(p.name.value for p in node.params.params)
    for target in nodes(node.body, cst.AssignTarget, cst.AnnAssign, cst.AugAssign, cst.For):
        counts.update(targets(target.target))
    reads = _reads(node)
    changes: dict[str, cst.BaseExpression] = {}
    for statement in nodes(node.body, cst.Assign):
        target, value = statement.targets[0].target, statement.value
        if len(statement.targets) != 1 or not isinstance(target, cst.Name) or counts[target.value] != 1:
            continue
        name = target.value
        alias = isinstance(value, cst.Name) and counts[value.value] == 1 and value.value not in changes
        few = reads[name] <= 2 or m.matches(value, m.Integer(value="0"))
        small = isinstance(value, cst.Integer) and few and not _is_shadowing_use(node, name)
        if alias or small:
            changes[name] = value
    return node.with_changes(body=node.body.visit(_Rename(changes))) if changes else node


def _is_shadowing_use(node: cst.FunctionDef, name: str) -> bool:
    """Is something asked of the name that a plain number cannot answer (`x.to(...)`, `x[...]`)?"""
    asked = nodes(node.body, cst.Attribute, cst.Subscript)
    return any(isinstance(use.value, cst.Name) and use.value.value == name for use in asked)


def simplified(node: cst.BinaryOperation) -> cst.BaseExpression:
    """`x * 1`, `0 + x` and `0 * x` as they would be written."""
    zero, one = m.Integer(value="0"), m.Integer(value="1")
    if isinstance(node.operator, cst.Multiply):
        if m.matches(node.right, one) or m.matches(node.left, zero):
            return node.left
        if m.matches(node.left, one) or m.matches(node.right, zero):
            return node.right
    if isinstance(node.operator, cst.Add):
        if m.matches(node.right, zero):
            return node.left
        if m.matches(node.left, zero):
            return node.right
    return node


class _Rename(cst.CSTTransformer):
    def __init__(self, changes: Mapping[str, cst.BaseExpression]) -> None:
        super().__init__()
        self._changes = changes

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        value = self._changes.get(original_node.value)
        return updated_node if value is None else value.deep_clone()

    def leave_BinaryOperation(
        self, original_node: cst.BinaryOperation, updated_node: cst.BinaryOperation
    ) -> cst.BaseExpression:
        return simplified(updated_node)

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_AssignTarget(self, original_node: cst.AssignTarget, updated_node: cst.AssignTarget) -> cst.AssignTarget:
        return original_node


def inline_trivial(node: cst.FunctionDef) -> int | None:
    """The position of the parameter that a helper hands back and does nothing else; None if it does more."""
    body = [s for s in node.body.body
            if not m.matches(s, m.SimpleStatementLine(body=[m.Expr(value=m.SimpleString())]))]  # fmt: skip
    if len(body) != 1 or not m.matches(body[0], m.SimpleStatementLine(body=[m.Return(value=m.Name())])):
        return None
    names = [p.name.value for p in node.params.params]
    returned = body[0].body[0].value.value
    return names.index(returned) if returned in names else None
