"""What a submission keeps from one call to the next, and what it hands out.

A small data-flow over the file's own functions. A value is *computed* when it depends on the contents of the task's
tensors (their shapes, strides, dtypes and devices do not count). It is *kept* when it lies in something that outlives a
call: a module-level container or name, a function's attribute, a mutable default argument, a cached function.

- a computed value that is kept is work taken out of later calls: refused;
- a kept value that `custom_kernel` returns is an output buffer handed out twice: refused;
- a kept value looked up by address or identity of a tensor: refused.

Workspaces kept per shape, tables of configs, kernels and chosen configs are none of these.
"""

from __future__ import annotations

import ast

from mxfp4lab.export.findings import Finding, error
from mxfp4lab.export.follow import Body, Function
from mxfp4lab.export.values import CACHING, Value, dotted


class Flow:
    """Follows values through a module.

    Args:
        tree: the parsed file; entry: the function that is called with the task's tensors.
    """

    def __init__(self, tree: ast.Module, entry: str = "custom_kernel") -> None:
        self._tree, self._entry = tree, entry
        self._functions: dict[str, Function] = {}
        self._module_names: set[str] = set()
        self._findings: set[Finding] = set()
        self._kernels: set[str] = set()
        self._tabled: set[str] = set()  # functions that stand in a module-level table
        self._collect()

    def findings(self) -> list[Finding]:
        """Everything that outlives a call and must not."""
        start = self._functions.get(self._entry)
        if start is None:
            return []
        for position, name in enumerate(start.parameters):
            start.given[name] = Value(computed=True, parameters=frozenset({position}))
        for _ in range(12):  # the facts only grow; a dozen rounds are more than any chain of calls here
            before = self._state()
            self._findings.clear()
            for function in self._functions.values():
                Body(self, function).run()
            if self._state() == before:
                break
        for line, value in start.returned_lines:
            if value.kept:
                said = "custom_kernel returns memory that is kept between calls: an output buffer is handed out twice"
                self._report(line, "reused-output", said)
        return sorted(self._findings)

    def _state(self) -> list:
        return [(f.returns, dict(f.given)) for f in self._functions.values()]

    def _collect(self) -> None:
        for node in self._tree.body:
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    self._module_names |= {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
        kernels = self._kernels
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Global):
                self._module_names |= set(node.names)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                decorators = {dotted(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list}
                if any(d.split(".")[-1] in ("jit", "autotune", "heuristics") for d in decorators):
                    kernels.add(node.name)
                    continue
                arguments = [*node.args.posonlyargs, *node.args.args]
                item = Function(node, [a.arg for a in arguments], cached=bool(decorators & CACHING))
                for argument, default in zip(arguments[::-1], node.args.defaults[::-1], strict=False):
                    if isinstance(default, (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp)) or (
                        isinstance(default, ast.Call) and dotted(default.func) in ("dict", "list", "set")
                    ):
                        item.mutable.add(argument.arg)
                self._functions[node.name] = item
        self._module_names |= kernels
        for node in self._tree.body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(
                node.value, (ast.Dict, ast.Tuple, ast.List)
            ):
                self._tabled |= {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)} & set(self._functions)

    def function(self, name: str) -> Function | None:
        return self._functions.get(name)

    def tabled(self, arguments: int) -> list[Function]:
        """Functions that a call with so many positional arguments of something out of a table may reach."""
        found = [self._functions[name] for name in sorted(self._tabled)]
        return [f for f in found if f.node.args.vararg is not None or arguments <= len(f.parameters)]

    def is_kernel(self, name: str) -> bool:
        return name in self._kernels

    def is_module_name(self, name: str) -> bool:
        return name in self._module_names

    def _report(self, line: int, rule: str, message: str) -> None:
        self._findings.add(error(line, rule, message))

    report = _report
