"""A thin entry point and the function that it calls, made one kernel."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst
import libcst.matchers as m


def is_docstring(statement: cst.BaseStatement) -> bool:
    return m.matches(statement, m.SimpleStatementLine(body=[m.Expr(value=m.SimpleString() | m.ConcatenatedString())]))


def bind(node: cst.FunctionDef, call: cst.Call) -> dict[str, cst.BaseExpression]:
    """Argument expression of each parameter of a call."""
    names = [p.name.value for p in node.params.params]
    bound: dict[str, cst.BaseExpression] = {}
    for position, argument in enumerate(call.args):
        bound[argument.keyword.value if argument.keyword else names[position]] = argument.value
    for parameter in node.params.params:
        if parameter.name.value not in bound and parameter.default is not None:
            bound[parameter.name.value] = parameter.default
    return bound


def merge(
    outer: cst.FunctionDef, docstring: str | None, inner: cst.FunctionDef, bound: Mapping[str, cst.BaseExpression]
) -> cst.FunctionDef:
    """The outer definition with the inner body: a thin entry point and what it calls become one kernel."""
    changes = {
        name: value for name, value in bound.items() if not (isinstance(value, cst.Name) and value.value == name)
    }
    body = inner.body.visit(_Substitute(changes)) if changes else inner.body
    first = " ".join((inner.get_docstring() or "").split("\n\n")[0].split())
    about = " ".join(filter(None, [first, docstring]))
    rest = [s for s in body.body if not is_docstring(s)]
    if about:
        rest.insert(0, cst.parse_statement(f'"""{about}"""'))
    return outer.with_changes(body=body.with_changes(body=rest))


class _Substitute(cst.CSTTransformer):
    """Replaces names by expressions; attribute names and keywords stay."""

    def __init__(self, changes: Mapping[str, cst.BaseExpression]) -> None:
        super().__init__()
        self._changes = changes

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        value = self._changes.get(original_node.value)
        return updated_node if value is None else value.deep_clone()

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)
