"""Fast reading of libcst trees: libcst's own matchers visit every comma and blank."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

_BLANK = (
    cst.SimpleWhitespace,
    cst.ParenthesizedWhitespace,
    cst.TrailingWhitespace,
    cst.EmptyLine,
    cst.Comma,
    cst.Newline,
)


def nodes(root: cst.CSTNode, *kinds: type) -> Iterator:
    """All nodes of the given kinds below and including `root`, in the order of the text."""
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, kinds):
            yield node
        below = []
        for name in node.__dataclass_fields__:
            value = getattr(node, name)
            if isinstance(value, cst.CSTNode):
                if not isinstance(value, _BLANK):
                    below.append(value)
            elif isinstance(value, (list, tuple)):
                below += [v for v in value if isinstance(v, cst.CSTNode) and not isinstance(v, _BLANK)]
        stack.extend(reversed(below))


def names(root: cst.CSTNode) -> Iterator[str]:
    """Every name that is mentioned, attributes included, as often as it is."""
    return (node.value for node in nodes(root, cst.Name))


def named_calls(root: cst.CSTNode) -> Iterator[cst.Call]:
    """Calls of plain names."""
    return (call for call in nodes(root, cst.Call) if isinstance(call.func, cst.Name))


def targets(target: cst.BaseExpression) -> list[str]:
    """Names that an assignment to `target` binds."""
    if isinstance(target, cst.Name):
        return [target.value]
    if isinstance(target, (cst.Tuple, cst.List)):
        return [name for element in target.elements for name in targets(element.value)]
    return []


def names_bound(function: cst.FunctionDef) -> set[str]:
    """Parameters of a function and everything assigned in it."""
    found = {parameter.name.value for parameter in function.params.params}
    for target in nodes(function.body, cst.AssignTarget, cst.AnnAssign, cst.AugAssign, cst.For):
        found.update(targets(target.target))
    return found
