"""Values of expressions over compile-time constants, as far as they are known."""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping

import libcst as cst


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        raise TypeError("an unknown value has no truth")


UNKNOWN = _Unknown()
Environment = Mapping[str, object]

_COMPARE = {
    cst.Equal: operator.eq, cst.NotEqual: operator.ne, cst.LessThan: operator.lt, cst.GreaterThan: operator.gt,
    cst.LessThanEqual: operator.le, cst.GreaterThanEqual: operator.ge, cst.Is: operator.is_, cst.IsNot: operator.is_not,
    cst.In: lambda a, b: a in b, cst.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_BINARY = {
    cst.Add: operator.add, cst.Subtract: operator.sub, cst.Multiply: operator.mul, cst.FloorDivide: operator.floordiv,
    cst.Modulo: operator.mod, cst.LeftShift: operator.lshift, cst.RightShift: operator.rshift,
    cst.BitAnd: operator.and_, cst.BitOr: operator.or_,
}  # fmt: skip


def evaluate(node: cst.CSTNode, known: Environment) -> object:
    """The value of an expression, or UNKNOWN.

    Boolean operators follow Python: `False and anything` is False although `anything` is unknown.
    """
    if isinstance(node, cst.Name):
        if node.value in ("True", "False", "None"):
            return {"True": True, "False": False, "None": None}[node.value]
        return known.get(node.value, UNKNOWN)
    if isinstance(node, (cst.Integer, cst.Float, cst.SimpleString)):
        return ast.literal_eval(node.value)
    if isinstance(node, cst.Tuple):
        values = [evaluate(element.value, known) for element in node.elements]
        return UNKNOWN if any(v is UNKNOWN for v in values) else tuple(values)
    if isinstance(node, cst.UnaryOperation):
        value = evaluate(node.expression, known)
        if value is UNKNOWN:
            return UNKNOWN
        if isinstance(node.operator, cst.Not):
            return not value
        return -value if isinstance(node.operator, cst.Minus) else UNKNOWN  # type: ignore[operator]
    if isinstance(node, cst.BooleanOperation):
        left, right = evaluate(node.left, known), evaluate(node.right, known)
        stops = (lambda v: not v) if isinstance(node.operator, cst.And) else bool
        if left is not UNKNOWN:
            return left if stops(left) else right
        if right is not UNKNOWN and stops(right) and isinstance(right, bool):
            return right  # the other side only decides whether this one is looked at
        return UNKNOWN
    if isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
        target = node.comparisons[0]
        left, right = evaluate(node.left, known), evaluate(target.comparator, known)
        if left is UNKNOWN or right is UNKNOWN:
            return UNKNOWN
        try:
            return _COMPARE[type(target.operator)](left, right)
        except TypeError:
            return UNKNOWN
    if isinstance(node, cst.BinaryOperation) and type(node.operator) in _BINARY:
        left, right = evaluate(node.left, known), evaluate(node.right, known)
        if left is UNKNOWN or right is UNKNOWN:
            return UNKNOWN
        try:
            return _BINARY[type(node.operator)](left, right)
        except (TypeError, ZeroDivisionError):
            return UNKNOWN
    if isinstance(node, cst.IfExp):
        test = evaluate(node.test, known)
        return UNKNOWN if test is UNKNOWN else evaluate(node.body if test else node.orelse, known)
    return UNKNOWN


def literal(value: object) -> cst.BaseExpression:
    """An expression that is this value."""
    text = f'"{value}"' if isinstance(value, str) and '"' not in value and "\\" not in value else repr(value)
    return cst.parse_expression(text)
