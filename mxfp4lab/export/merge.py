"""A thin entry point and the function that it calls, made one kernel."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst

from mxfp4lab.export.prose import docstring_of, with_docstring
from mxfp4lab.export.simplify import Substitute


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


def merge(outer: cst.FunctionDef, inner: cst.FunctionDef, bound: Mapping[str, cst.BaseExpression]) -> cst.FunctionDef:
    """The outer definition with the inner body: a thin entry point and what it calls become one kernel.

    What the inner one is stands first in the docstring, then what the outer one adds, then the details.
    """
    changes = {
        name: value for name, value in bound.items() if not (isinstance(value, cst.Name) and value.value == name)
    }
    body = inner.body.visit(Substitute(changes, assigned=True)) if changes else inner.body
    summary, _, details = docstring_of(inner).partition("\n\n")
    about = "\n\n".join(filter(None, [summary, docstring_of(outer), details]))
    return with_docstring(outer.with_changes(body=body), about)
