"""One function written anew for the constants that reach it: reachable statements only, constants as literals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import libcst as cst
import libcst.matchers as m

from mxfp4lab.export.evaluate import UNKNOWN, evaluate, literal
from mxfp4lab.export.merge import bind
from mxfp4lab.export.reach import Constants, assigned_once, bind_locals, partition
from mxfp4lab.export.simplify import simplified
from mxfp4lab.export.unroll import with_lead

if TYPE_CHECKING:
    from mxfp4lab.export.fold import Folder, Function


def without_parameters(node: cst.FunctionDef, positions: Sequence[int]) -> cst.FunctionDef:
    if not positions:
        return node
    kept = [p for i, p in enumerate(node.params.params) if i not in positions]
    return node.with_changes(params=node.params.with_changes(params=kept))


class Rewriter:
    """Writes one function anew: reachable statements only, constants as literals."""

    def __init__(self, folder: Folder, item: Function) -> None:
        self._folder, self._item = folder, item
        self._once = assigned_once(item.node)

    def rewrite(self) -> cst.FunctionDef:
        node = self._item.node
        environments = [dict(e) for e in self._item.environments] or [{}]
        body = self._block(node.body.body, environments)
        node = node.with_changes(body=node.body.with_changes(body=body or [cst.parse_statement("pass")]))
        folded = [i for i, p in enumerate(node.params.params) if p.name.value in self._item.folded]
        return without_parameters(node, folded)

    def _block(self, statements: Sequence[cst.BaseStatement], environments: list[Constants]) -> list[cst.BaseStatement]:
        written: list[cst.BaseStatement] = []
        for statement in statements:
            if isinstance(statement, cst.If):
                written += self._if(statement, environments)
            elif isinstance(statement, (cst.For, cst.While, cst.With)):
                body = self._block(statement.body.body, environments)
                header = self._expression(statement.with_changes(body=cst.IndentedBlock([])), environments)
                written.append(header.with_changes(body=statement.body.with_changes(body=body)))
            elif isinstance(statement, cst.SimpleStatementLine):
                written.append(self._expression(statement, environments))
                bind_locals(statement, environments, self._once)
            else:
                written.append(statement)
            if isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[-1], cst.Return):
                break
            if isinstance(statement, cst.If) and written and _returns(written[-1]):
                break
        return written

    def _if(self, node: cst.If, environments: list[Constants]) -> list[cst.BaseStatement]:
        taken, skipped, decided = partition(node.test, environments)
        if decided and not skipped:
            return with_lead(self._block(node.body.body, environments), node.leading_lines)
        if decided and not taken:
            return with_lead(self._else(node.orelse, environments), _comments_of(node.orelse, node.leading_lines))
        test = self._expression(node.test, environments)
        body = self._block(node.body.body, [dict(e) for e in taken])
        orelse = self._else(node.orelse, [dict(e) for e in skipped])
        if not body and not orelse:
            return []
        node = node.with_changes(test=test, body=node.body.with_changes(body=body or [cst.parse_statement("pass")]))
        if not orelse:
            return [node.with_changes(orelse=None)]
        if len(orelse) == 1 and isinstance(orelse[0], cst.If):
            return [node.with_changes(orelse=orelse[0])]
        before = node.orelse if isinstance(node.orelse, cst.Else) else cst.Else(cst.IndentedBlock([]))
        return [node.with_changes(orelse=before.with_changes(body=cst.IndentedBlock(orelse)))]

    def _else(self, node: cst.If | cst.Else | None, environments: list[Constants]) -> list[cst.BaseStatement]:
        if node is None or not environments:
            return []
        if isinstance(node, cst.If):
            return self._if(node, environments)
        return self._block(node.body.body, environments)

    def _expression(self, node: Any, environments: list[Constants]) -> Any:
        return node.visit(_ExpressionFolder(self._folder, self._item, environments))


def _returns(statement: cst.BaseStatement) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[-1], cst.Return)


def _comments_of(orelse: cst.If | cst.Else | None, fallback: Sequence[cst.EmptyLine]) -> Sequence[cst.EmptyLine]:
    """A comment above `if` says what the whole is about: it goes with whichever branch stays."""
    own = [] if orelse is None else list(orelse.leading_lines)
    return [*fallback, *own]


class _ExpressionFolder(cst.CSTTransformer):
    """Constants as literals, decided operands gone, arguments of folded parameters dropped."""

    def __init__(self, folder: Folder, item: Function, environments: list[Constants]) -> None:
        super().__init__()
        self._folder, self._item, self._environments = folder, item, environments

    def _always(self, node: cst.BaseExpression) -> object:
        values = [evaluate(node, e) for e in self._environments]
        if any(v is UNKNOWN for v in values):
            return UNKNOWN
        same = all(type(v) is type(values[0]) and v == values[0] for v in values)
        return values[0] if same else UNKNOWN

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        if original_node.value in self._item.folded:
            return literal(self._item.folded[original_node.value])
        return updated_node

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_BooleanOperation(
        self, original_node: cst.BooleanOperation, updated_node: cst.BooleanOperation
    ) -> cst.BaseExpression:
        whole = self._always(original_node)
        if whole is not UNKNOWN:
            return literal(whole)
        left, right = self._always(original_node.left), self._always(original_node.right)
        conjunction = isinstance(original_node.operator, cst.And)
        if left is not UNKNOWN and bool(left) is conjunction:
            return updated_node.right
        if isinstance(right, bool) and right is conjunction:
            return updated_node.left
        return updated_node

    def leave_UnaryOperation(
        self, original_node: cst.UnaryOperation, updated_node: cst.UnaryOperation
    ) -> cst.BaseExpression:
        value = self._always(original_node) if isinstance(original_node.operator, cst.Not) else UNKNOWN
        return updated_node if value is UNKNOWN else literal(value)

    def leave_IfExp(self, original_node: cst.IfExp, updated_node: cst.IfExp) -> cst.BaseExpression:
        value = self._always(original_node.test)
        if value is UNKNOWN:
            return updated_node
        return updated_node.body if value else updated_node.orelse

    def leave_BinaryOperation(
        self, original_node: cst.BinaryOperation, updated_node: cst.BinaryOperation
    ) -> cst.BaseExpression:
        return simplified(updated_node)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        if not isinstance(original_node.func, cst.Name):
            kept = [a for a in updated_node.args if not _says_nothing(a)]
            return updated_node if len(kept) == len(updated_node.args) else _with_arguments(updated_node, kept)
        helper = self._folder.lookup(self._item, original_node.func.value)
        if helper is None or not helper.folded:
            return updated_node
        names = [p.name.value for p in helper.source.node.params.params]
        kept = []
        for position, argument in enumerate(updated_node.args):
            name = argument.keyword.value if argument.keyword else names[position]
            if name not in helper.folded:
                kept.append(argument)
        return _with_arguments(updated_node, kept)


def _says_nothing(argument: cst.Arg) -> bool:
    """`cache_modifier=""` is what a load does anyway."""
    return (
        argument.keyword is not None
        and argument.keyword.value == "cache_modifier"
        and m.matches(argument.value, m.SimpleString(value='""') | m.SimpleString(value="''"))
    )


def _with_arguments(call: cst.Call, arguments: Sequence[cst.Arg]) -> cst.Call:
    """A call with other arguments, on one line; a long line is broken afterwards."""
    comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    plain = [a.with_changes(comma=comma, whitespace_after_arg=cst.SimpleWhitespace("")) for a in arguments]
    if plain:
        plain[-1] = plain[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return call.with_changes(args=plain, whitespace_before_args=cst.SimpleWhitespace(""))


class CallTrimmer(cst.CSTTransformer):
    """Drops arguments that a helper no longer takes; calls of helpers that only hand on become what they hand on to."""

    def __init__(
        self,
        folder: Folder,
        item: Function,
        unused: Mapping[str, Sequence[int]],
        trivial: Mapping[str, int],
        wrappers: Mapping[str, cst.Call],
    ) -> None:
        super().__init__()
        self._folder, self._item = folder, item
        self._unused, self._trivial, self._wrappers = unused, trivial, wrappers

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        if not isinstance(original_node.func, cst.Name):
            return updated_node
        helper = self._folder.lookup(self._item, original_node.func.value)
        if helper is None or helper.is_entry:
            return updated_node
        if helper.name in self._trivial:
            return updated_node.args[self._trivial[helper.name]].value
        if helper.name in self._wrappers:
            inner = self._wrappers[helper.name]
            given = bind(helper.node, updated_node)
            arguments = [cst.Arg(given[argument.value.value]) for argument in inner.args]
            return _with_arguments(updated_node.with_changes(func=inner.func), arguments)
        positions = self._unused.get(helper.name, [])
        if not positions:
            return updated_node
        names = helper.parameters()
        gone = {names[i] for i in positions}
        kept = [a for i, a in enumerate(updated_node.args)
                if (a.keyword.value if a.keyword else names[i] if i < len(names) else None) not in gone]  # fmt: skip
        return _with_arguments(updated_node, kept)
