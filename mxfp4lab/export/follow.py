"""One pass over one function of a submission: what its statements do with values, what it keeps and what it returns."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mxfp4lab.export.values import (
    BACKGROUND_CALLS,
    DESCRIBES,
    DESCRIBING_CALLS,
    FRESH,
    LOOKUPS,
    NOTHING,
    SAME_MEMORY,
    STORES,
    Value,
    dotted,
)

if TYPE_CHECKING:
    from mxfp4lab.export.flow import Flow


@dataclass
class Function:
    """What is known of a function of the submission; facts are added until nothing new is learnt.

    Attributes:
        given: what its parameters have been called with; returns: what it hands back.
        cached: a decorator keeps its results; mutable: parameters whose default lives on between calls.
        returned_lines: line and value of every `return`.
    """

    node: ast.FunctionDef | ast.AsyncFunctionDef
    parameters: list[str]
    given: dict[str, Value] = field(default_factory=dict)
    returns: Value = NOTHING
    cached: bool = False
    mutable: set[str] = field(default_factory=set)
    returned_lines: list[tuple[int, Value]] = field(default_factory=list)


class Body:
    """One pass over one function."""

    def __init__(self, flow: Flow, function: Function) -> None:
        self._flow, self._function = flow, function
        self._local: dict[str, Value] = dict(function.given)
        for name in function.parameters:
            self._local.setdefault(name, NOTHING)
        for name in function.mutable:
            self._local[name] = self._local[name] | Value(kept=True)
        self._globals = {n for node in ast.walk(function.node) if isinstance(node, ast.Global) for n in node.names}
        function.returned_lines = []

    def run(self) -> None:
        for _ in range(2):  # a name may be read above the line of a loop that assigns it
            self._block(self._function.node.body)

    # statements -------------------------------------------------------------------------------------------------------

    def _block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign):
            value = self._value(node.value)
            for target in node.targets:
                self._assign(target, value, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._assign(node.target, self._value(node.value), node.value)
        elif isinstance(node, ast.AugAssign):
            self._assign(node.target, self._value(node.value) | self._value(node.target), node.value)
        elif isinstance(node, ast.Return):
            value = self._value(node.value) if node.value is not None else NOTHING
            self._function.returns = self._function.returns | value
            self._function.returned_lines.append((node.lineno, value))
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            self._assign(node.target, self._value(node.iter), node.iter)
            self._block(node.body + node.orelse)
        elif isinstance(node, (ast.While, ast.If)):
            self._value(node.test)
            self._block(node.body + node.orelse)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                value = self._value(item.context_expr)
                if item.optional_vars is not None:
                    self._assign(item.optional_vars, value, item.context_expr)
            self._block(node.body)
        elif isinstance(node, ast.Try):
            self._block(node.body + [s for h in node.handlers for s in h.body] + node.orelse + node.finalbody)
        elif isinstance(node, ast.Expr):
            self._value(node.value)

    def _assign(self, target: ast.expr, value: Value, source: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            elements = source.elts if isinstance(source, (ast.Tuple, ast.List)) else []
            for index, element in enumerate(target.elts):
                part = self._value(elements[index]) if len(elements) == len(target.elts) else value
                self._assign(element, part, source)
        elif isinstance(target, ast.Starred):
            self._assign(target.value, value, source)
        elif isinstance(target, ast.Name):
            if target.id in self._globals:
                self._keep(target.lineno, target.id, value, source)
            else:
                self._local[target.id] = self._local.get(target.id, NOTHING) | value
        elif isinstance(target, ast.Subscript):
            self._value(target.value)
            if self._outlives(target.value):
                self._look_up(target.lineno, target.slice)
                self._keep(target.lineno, dotted(target.value) or "a container", value, source)
        elif isinstance(target, ast.Attribute) and self._outlives(target.value):
            self._keep(target.lineno, dotted(target) or "an attribute", value, source)

    def _keep(self, line: int, where: str, value: Value, source: ast.expr) -> None:
        """A value goes into something that outlives the call; whoever holds it locally now holds a kept value."""
        if value.computed:
            self._flow.report(line, "cached-result", f"{where} keeps a value computed from the inputs: results and "
                              "quantized tensors must not outlive their call")  # fmt: skip
        for node in ast.walk(source):
            if isinstance(node, ast.Name) and node.id in self._local and not self._describes(node, source):
                self._local[node.id] = self._local[node.id] | Value(kept=True)

    @staticmethod
    def _describes(name: ast.Name, source: ast.expr) -> bool:
        """Is the name only asked for its shape or the like, or an argument of a call that makes something new?"""
        return not (source is name or (isinstance(source, (ast.Tuple, ast.List)) and name in source.elts))

    def _outlives(self, node: ast.expr) -> bool:
        """Does an expression name something that lives on between calls?"""
        while isinstance(node, (ast.Subscript, ast.Attribute)):
            if isinstance(node, ast.Attribute) and dotted(node).split(".")[0] in ("self", "cls"):
                return True
            node = node.value
        if isinstance(node, ast.Name):
            if node.id in ("self", "cls"):
                return True
            if node.id in self._local:
                return self._local[node.id].kept
            return self._flow.is_module_name(node.id) or self._flow.function(node.id) is not None
        return isinstance(node, ast.Call) and self._value(node).kept

    def _look_up(self, line: int, key: ast.expr) -> None:
        if self._value(key).address:
            self._flow.report(line, "keyed-by-pointer", "something kept is looked up by a tensor's address or id")

    # expressions ------------------------------------------------------------------------------------------------------

    def _value(self, node: ast.expr | None) -> Value:
        if node is None or isinstance(node, ast.Constant):
            return NOTHING
        if isinstance(node, ast.Name):
            if node.id in self._local and node.id not in self._globals:
                return self._local[node.id]
            return Value(kept=True) if self._flow.is_module_name(node.id) else NOTHING
        if isinstance(node, ast.Attribute):
            owner = self._value(node.value)
            if node.attr in DESCRIBES:
                return NOTHING
            if dotted(node).split(".")[0] in ("self", "cls"):
                return Value(kept=True)
            return owner
        if isinstance(node, ast.Subscript):
            owner = self._value(node.value)
            if self._outlives(node.value):
                self._look_up(node.lineno, node.slice)
            self._value(node.slice)
            return owner
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Compare):
            return self._compare(node)
        if isinstance(node, ast.IfExp):
            self._value(node.test)
            return self._value(node.body) | self._value(node.orelse)
        if isinstance(node, ast.BoolOp):
            return self._join(node.values)
        if isinstance(node, ast.NamedExpr):
            value = self._value(node.value)
            self._assign(node.target, value, node.value)
            return value
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            return self._join(node.elts)
        if isinstance(node, ast.Starred):
            return self._value(node.value)
        if isinstance(node, ast.Dict):
            return self._join([v for v in [*node.keys, *node.values] if v is not None])
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            for generator in node.generators:
                self._assign(generator.target, self._value(generator.iter), generator.iter)
            parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            return self._join(parts)
        if isinstance(node, (ast.BinOp, ast.UnaryOp)):  # a new value, in new memory
            parts = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.operand]
            return Value(computed=self._join(parts).computed, address=self._join(parts).address)
        if isinstance(node, ast.Lambda):
            return NOTHING
        return self._join([child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)])

    def _join(self, nodes: list[ast.expr]) -> Value:
        value = NOTHING
        for node in nodes:
            value = value | self._value(node)
        return value

    def _compare(self, node: ast.Compare) -> Value:
        """`key in CACHE` and `tensor is LAST` are look-ups."""
        sides = [node.left, *node.comparators]
        values = [self._value(side) for side in sides]
        for operator, left, right in zip(node.ops, range(len(sides)), range(1, len(sides)), strict=False):
            one, other = values[left], values[right]
            if isinstance(operator, (ast.In, ast.NotIn)) and self._outlives(sides[right]):
                self._look_up(node.lineno, sides[left])
            literal = isinstance(sides[left], ast.Constant) or isinstance(sides[right], ast.Constant)
            identity = isinstance(operator, (ast.Is, ast.IsNot)) and not literal
            if identity and ((one.computed and other.kept) or (other.computed and one.kept)):
                self._flow.report(
                    node.lineno, "keyed-by-pointer", "an input is compared with a kept tensor by identity"
                )
            addresses = (one.address and other.kept) or (other.address and one.kept)
            if isinstance(operator, (ast.Eq, ast.NotEq)) and addresses:
                self._flow.report(
                    node.lineno, "keyed-by-pointer", "a tensor's address or id is compared with a kept one"
                )
        return Value(computed=any(v.computed for v in values))

    def _call(self, node: ast.Call) -> Value:
        name = dotted(node.func)
        last = name.split(".")[-1] if name else node.func.attr if isinstance(node.func, ast.Attribute) else ""
        arguments = [self._value(a) for a in node.args]
        named = {k.arg: self._value(k.value) for k in node.keywords}
        everything = NOTHING
        for value in [*arguments, *named.values()]:
            everything = everything | value
        if last in BACKGROUND_CALLS and everything.computed:
            said = f"{last} hands the inputs to another thread or process: C must be computed inside the timed call"
            self._flow.report(node.lineno, "outside-call", said)
        if isinstance(node.func, ast.Name) and self._flow.function(node.func.id) is not None:
            return self._own_call(node, self._flow.function(node.func.id), arguments, named)
        if isinstance(node.func, ast.Attribute):
            owner = self._value(node.func.value)
            lives_on = self._outlives(node.func.value)
            if last in ("data_ptr", "storage_ptr"):
                return Value(address=True)
            if last in DESCRIBING_CALLS:
                return NOTHING
            if lives_on and last in LOOKUPS and node.args:
                self._look_up(node.lineno, node.args[0])
            if lives_on and last in STORES and node.args:
                self._look_up(node.lineno, node.args[0]) if last in ("setdefault", "__setitem__") else None
                self._keep(node.lineno, dotted(node.func.value) or "a container", everything, node.args[-1])
            if lives_on and last in LOOKUPS:
                return Value(kept=True, computed=False)
            if last in SAME_MEMORY:
                return owner | Value(computed=everything.computed)
            if last in FRESH:
                return NOTHING
            if last == "clone":
                return Value(computed=owner.computed)
            return Value(computed=owner.computed or everything.computed)
        if isinstance(node.func, (ast.Subscript, ast.Name)) and self._from_a_table(node.func):
            value = Value(computed=everything.computed)
            for function in self._flow.tabled(len(node.args)):
                value = value | self._own_call(node, function, arguments, named)
            return value
        if isinstance(node.func, ast.Subscript):  # kernel[grid](...)
            self._value(node.func)
            return Value(computed=everything.computed)
        if name == "id":
            return Value(address=bool(node.args) and arguments[0].computed)
        if last in FRESH:
            return NOTHING
        if last in (
            "tuple",
            "list",
            "dict",
            "sorted",
            "reversed",
            "zip",
            "enumerate",
            "map",
            "filter",
            "iter",
            "next",
            "set",
        ):
            return everything
        self._value(node.func)
        return Value(computed=everything.computed, address=everything.address)

    def _from_a_table(self, called: ast.expr) -> bool:
        """Is what is called a local that came out of something kept, or an element of a module-level container?"""
        if isinstance(called, ast.Name):
            return called.id in self._local and self._local[called.id].kept
        while isinstance(called, ast.Subscript):
            called = called.value
        in_module = isinstance(called, ast.Name) and self._flow.is_module_name(called.id)
        return in_module and not self._flow.is_kernel(called.id)

    def _own_call(
        self, node: ast.Call, function: Function, arguments: list[Value], named: dict[str | None, Value]
    ) -> Value:
        """A call of one of the file's functions: its parameters learn, its return value is known."""
        given: dict[str, Value] = {}
        starred = next((i for i, a in enumerate(node.args) if isinstance(a, ast.Starred)), len(node.args))
        for position, value in enumerate(arguments):
            taken = (
                function.parameters[position : position + 1] if position < starred else function.parameters[starred:]
            )
            for parameter in taken:
                given[parameter] = given.get(parameter, NOTHING) | value
        given |= {k: v for k, v in named.items() if k in function.parameters}
        for name, value in given.items():
            position = function.parameters.index(name)
            learnt = Value(value.computed, False, value.address, frozenset({position}))
            function.given[name] = function.given.get(name, NOTHING) | learnt
        if function.cached and any(value.computed for value in given.values()):
            self._flow.report(node.lineno, "cached-result", f"{function.node.name} is cached and called with tensors: "
                              "its results outlive the call")  # fmt: skip
        kept = function.returns.kept or any(
            given.get(function.parameters[p], NOTHING).kept
            for p in function.returns.parameters
            if p < len(function.parameters)
        )
        positions = frozenset().union(
            *(given.get(function.parameters[p], NOTHING).parameters for p in function.returns.parameters
              if p < len(function.parameters)))  # fmt: skip
        return Value(function.returns.computed, kept, function.returns.address, positions)
