"""What a kernel says about itself, without what folding took away.

A docstring in `kernels/` describes every option. A sentence (or a part between semicolons, or an entry under `Args:`)
that names a parameter or a helper which an exported file no longer has leaves with it.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Collection, Mapping, Sequence

import libcst as cst
import libcst.matchers as m

WIDTH = 120
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"(\[])")
_CONDITION = re.compile(r"(With|Unless) (\w+),? (.+)")
_ENTRY = re.compile(r" {4}(\w+(?:, \w+)*): ")
_PRODUCT = re.compile(r"(?<![\w*/%+-] )\b(\d+) (\*|//) (\d+)\b")
_INDENT = " " * 4


def mentions(text: str, gone: Collection[str]) -> bool:
    """Does prose speak of a name? CAPITALS are names anywhere, other words only between backticks."""
    quoted = " ".join(re.findall(r"`+([^`]+)`+", text))
    for name in gone:
        if re.search(rf"\b{re.escape(name)}\b", text if name.isupper() and len(name) > 1 else quoted):
            return True
    return False


def without(text: str, gone: Collection[str], flags: Mapping[str, bool] | None = None) -> str:
    """A paragraph without its sentences about names that are gone.

    Args:
        flags: options that are gone because they are always on or off: "With STAGED A is read by rows" becomes "A is
            read by rows" where STAGED is always on.
    """
    kept = []
    for sentence in _SENTENCE.split(" ".join(text.split())):
        condition = _CONDITION.match(sentence)
        if condition and condition[2] in (flags or {}):
            if (flags or {})[condition[2]] is not (condition[1] == "With"):
                continue
            sentence = condition[3][0].upper() + condition[3][1:]
        if not mentions(sentence, gone):
            kept.append(sentence)
            continue
        parts = [part for part in sentence.rstrip(".").split("; ") if not mentions(part, gone)]
        if parts:
            said = "; ".join(parts)
            kept.append(f"{said[0].upper()}{said[1:]}.")
    return " ".join(kept)


def with_values(text: str, values: Mapping[str, int]) -> str:
    """Text whose expressions between backticks hold numbers for names that always have one value.

    ``[ROWS, STEP_K // 32]`` becomes ``[ROWS, 4]`` where STEP_K is 128 everywhere.
    """

    def quoted(match: re.Match) -> str:
        said = match[0]
        for name, value in values.items():
            said = re.sub(rf"\b{re.escape(name)}\b", str(value), said)
        while said != match[0] and (product := _PRODUCT.search(said)):
            left, operator, right = int(product[1]), product[2], int(product[3])
            number = left * right if operator == "*" else left // max(right, 1)
            said = f"{said[: product.start()]}{number}{said[product.end() :]}"
        return said

    return re.sub(r"`+[^`]+`+", quoted, text)


def docstring_without(text: str, gone: Collection[str], flags: Mapping[str, bool] | None = None) -> str:
    """A docstring (as `inspect.cleandoc` gives it) without what is gone."""
    blocks = []
    for block in text.split("\n\n"):
        head, _, rest = block.partition("\n")
        if head.endswith(":") and rest.startswith(_INDENT):
            entries = _section(rest, gone)
            if entries:
                blocks.append("\n".join([head, *entries]))
        elif mentions(block, gone):
            kept = without(block, gone, flags)
            if kept:
                blocks.append(textwrap.fill(kept, WIDTH - 4))
        else:
            blocks.append(block)
    return "\n\n".join(blocks)


def _section(text: str, gone: Collection[str]) -> list[str]:
    """The lines of `Args:` or `Returns:` that stay."""
    entries: list[list[str]] = []
    for line in text.split("\n"):
        if _ENTRY.match(line) or not entries:
            entries.append([line])
        else:
            entries[-1].append(line)
    lines: list[str] = []
    for entry in entries:
        match = _ENTRY.match(entry[0])
        named = match[1].split(", ") if match else []
        if named and all(name in gone for name in named):
            continue
        if not mentions("\n".join(entry), gone):
            lines += entry
            continue
        left = [name for name in named if name not in gone]
        head = f"{_INDENT}{', '.join(left)}: " if left else _INDENT
        said = without("\n".join(entry)[match.end() if match else 4 :], gone)
        if said:
            lines += textwrap.wrap(head + said, WIDTH - 4, subsequent_indent=2 * _INDENT if left else _INDENT)
    return lines


# in a definition ------------------------------------------------------------------------------------------------------


def is_docstring(statement: cst.BaseStatement) -> bool:
    return m.matches(statement, m.SimpleStatementLine(body=[m.Expr(value=m.SimpleString() | m.ConcatenatedString())]))


def docstring_of(node: cst.FunctionDef) -> str:
    """The docstring, dedented; "" where there is none."""
    return inspect.cleandoc(node.get_docstring(clean=False) or "")


def with_docstring(node: cst.FunctionDef, text: str) -> cst.FunctionDef:
    """The definition with another docstring; none for ""."""
    rest = [s for s in node.body.body if not is_docstring(s)]
    if not text:
        return node.with_changes(body=node.body.with_changes(body=rest))
    first, *others = _wrapped(text).split("\n")
    tail = [f"{_INDENT}{line}" if line else "" for line in [*others, ""]] if others else []
    literal = "\n".join([f'"""{first}', *tail[:-1], f'{_INDENT}"""']) if others else f'"""{first}"""'
    statement = cst.SimpleStatementLine([cst.Expr(cst.SimpleString(literal))])
    return node.with_changes(body=node.body.with_changes(body=[statement, *rest]))


def _wrapped(text: str) -> str:
    """A first line that is too long becomes a sentence and a paragraph."""
    first, newline, rest = text.partition("\n")
    if len(first) <= WIDTH - (7 if newline else 10):
        return text
    sentence, *others = _SENTENCE.split(first, maxsplit=1)
    lines = [textwrap.fill(sentence, WIDTH - 7), *(textwrap.fill(other, WIDTH - 4) for other in others)]
    return "\n\n".join(lines) + newline + rest


def trimmed(node: cst.FunctionDef, gone: Collection[str], values: Mapping[str, int | bool]) -> cst.FunctionDef:
    """The definition whose docstring and comments say nothing of names that are gone.

    Args:
        values: what stands for some of them: numbers in expressions, and options that are always on or off.
    """
    if not gone:
        return node
    flags = {name: value for name, value in values.items() if isinstance(value, bool)}
    numbers = {name: value for name, value in values.items() if name not in flags}
    text = docstring_of(node)
    if mentions(text, gone):
        node = with_docstring(node, docstring_without(with_values(text, numbers), gone, flags))
    return node.with_changes(body=node.body.visit(_Comments(gone, flags)))


class _Comments(cst.CSTTransformer):
    """Comment lines above statements, paragraph by paragraph."""

    def __init__(self, gone: Collection[str], flags: Mapping[str, bool]) -> None:
        super().__init__()
        self._gone, self._flags, self._depth = gone, flags, 0

    def visit_IndentedBlock(self, node: cst.IndentedBlock) -> None:
        self._depth += 1

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        body = [s.with_changes(leading_lines=self._kept(s.leading_lines)) for s in updated_node.body]
        self._depth -= 1
        return updated_node.with_changes(body=body)

    def _kept(self, lines: Sequence[cst.EmptyLine]) -> list[cst.EmptyLine]:
        text = " ".join(line.comment.value.lstrip("# ") for line in lines if line.comment is not None)
        if not mentions(text, self._gone):
            return list(lines)
        blank = [line for line in lines if line.comment is None][:1]
        wrapped = textwrap.wrap(without(text, self._gone, self._flags), WIDTH - 2 - 4 * self._depth)
        return [*blank, *(cst.EmptyLine(comment=cst.Comment(f"# {line}")) for line in wrapped)]
