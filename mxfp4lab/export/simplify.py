"""Names replaced by expressions, and the arithmetic that this leaves written as a person would."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst
import libcst.matchers as m

_WHOLE = (cst.Name, cst.Integer, cst.Float, cst.SimpleString, cst.Call, cst.Attribute, cst.Subscript, cst.List)
_ZERO, _ONE, _EMPTY = m.Integer(value="0"), m.Integer(value="1"), m.Tuple(elements=[])


def simplified(node: cst.BinaryOperation) -> cst.BaseExpression:
    """`x * 1`, `0 + x`, `0 * x`, `x // 1`, `x % 1` and `() + x` as they would be written."""
    left, right = node.left, node.right
    if isinstance(node.operator, cst.Multiply):
        if m.matches(right, _ONE) or m.matches(left, _ZERO):
            return _in_brackets_of(node, left)
        if m.matches(left, _ONE) or m.matches(right, _ZERO):
            return _in_brackets_of(node, right)
    if isinstance(node.operator, cst.Add):
        if m.matches(right, _ZERO | _EMPTY):
            return _in_brackets_of(node, left)
        if m.matches(left, _ZERO | _EMPTY):
            return _in_brackets_of(node, right)
    if isinstance(node.operator, cst.Subtract) and m.matches(right, _ZERO):
        return _in_brackets_of(node, left)
    if isinstance(node.operator, cst.FloorDivide) and m.matches(right, _ONE):
        return _in_brackets_of(node, left)
    if isinstance(node.operator, cst.Modulo) and m.matches(right, _ONE):
        return cst.Integer("0")
    return node


def _in_brackets_of(outer: cst.BinaryOperation, inner: cst.BaseExpression) -> cst.BaseExpression:
    """What is left of an operation keeps the operation's brackets where it needs them."""
    if isinstance(inner, _WHOLE) or inner.lpar or not outer.lpar:
        return inner
    return inner.with_changes(lpar=outer.lpar, rpar=outer.rpar)


class Substitute(cst.CSTTransformer):
    """Replaces names by expressions and simplifies what they stand in; attributes, keywords and targets stay.

    Args:
        changes: name -> what is written for it.
        assigned: rename assigned names too, where another name is written for them.
    """

    def __init__(self, changes: Mapping[str, cst.BaseExpression], assigned: bool = False) -> None:
        super().__init__()
        self._changes, self._assigned = changes, assigned

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        value = self._changes.get(original_node.value)
        if value is None:
            return updated_node
        value = value.deep_clone()
        if isinstance(value, (cst.BinaryOperation, cst.UnaryOperation, cst.IfExp)) and not value.lpar:
            value = value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        return value

    def leave_BinaryOperation(
        self, original_node: cst.BinaryOperation, updated_node: cst.BinaryOperation
    ) -> cst.BaseExpression:
        return simplified(updated_node)

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_AssignTarget(self, original_node: cst.AssignTarget, updated_node: cst.AssignTarget) -> cst.AssignTarget:
        renamed = self._assigned and isinstance(updated_node.target, cst.Name)
        return updated_node if renamed or not isinstance(original_node.target, cst.Name) else original_node

    def leave_AnnAssign(self, original_node: cst.AnnAssign, updated_node: cst.AnnAssign) -> cst.AnnAssign:
        return updated_node.with_changes(target=original_node.target)
