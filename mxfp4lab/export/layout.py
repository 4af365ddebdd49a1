"""Line breaking for folded kernels and generated host code."""

from __future__ import annotations

import re
import textwrap

import libcst as cst

from mxfp4lab.export.walk import names

WIDTH = 120


def function_text(node: cst.FunctionDef) -> str:
    """A definition as text: parameters filled anew, long calls broken, the docstring wrapped, comments kept."""
    node = node.with_changes(leading_lines=[line for line in node.leading_lines if line.comment is not None])
    parameters = _one_line_parameters(node.params)
    node = node.with_changes(params=parameters, whitespace_before_params=cst.SimpleWhitespace(""))
    code = cst.Module([node]).code.rstrip() + "\n"
    lines = code.split("\n")
    written: list[str] = []
    for line in lines:
        written += break_line(line) if len(line) > WIDTH else [line]
    return _wrap_docstring("\n".join(written))


def _one_line_parameters(parameters: cst.Parameters) -> cst.Parameters:
    comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    plain = [p.with_changes(comma=comma, whitespace_after_param=cst.SimpleWhitespace("")) for p in parameters.params]
    if plain and not parameters.kwonly_params and parameters.star_kwarg is None:
        plain[-1] = plain[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return parameters.with_changes(params=plain)


def break_line(line: str, width: int = WIDTH) -> list[str]:
    """Break a long line inside its widest bracket, filling the lines; a definition's bracket closes on its own line."""
    indent = len(line) - len(line.lstrip())
    if line.lstrip().startswith(("#", '"""')):
        return [line]
    pair = _widest_bracket(line)
    if pair is None:
        return [line]
    start, end = pair
    pieces = _split_at_commas(line[start + 1 : end])
    head, tail = line[: start + 1], line[end:]
    inner = " " * (indent + 4)
    if line.lstrip().startswith("def "):
        tail_lines = [" " * indent + tail]
        pieces[-1] = pieces[-1] + ","
    else:
        tail_lines = []
        pieces[-1] = pieces[-1] + tail
    lines, current = [head], inner
    for piece in pieces:
        added = piece if current == inner else " " + piece
        if len(current) + len(added) > width and current != inner:
            lines.append(current)
            current, added = inner, piece
        current += added
    lines.append(current)
    broken: list[str] = []
    for made in [*lines, *tail_lines]:
        deeper = len(made) > width and made != line and _widest_bracket(made) is not None
        broken += break_line(made, width) if deeper else [made]
    return broken


def _brackets(text: str) -> list[tuple[int, int, int]]:
    """(start, end, depth) of every bracket pair outside of strings."""
    stack, found, quote, position = [], [], "", 0
    while position < len(text):
        character = text[position]
        if quote:
            if character == "\\":
                position += 1
            elif character == quote:
                quote = ""
        elif character in "\"'":
            quote = character
        elif character in "([{":
            stack.append(position)
        elif character in ")]}" and stack:
            start = stack.pop()
            found.append((start, position, len(stack)))
        position += 1
    return found


def _widest_bracket(line: str) -> tuple[int, int] | None:
    pairs = [(start, end) for start, end, _ in _brackets(line) if len(_split_at_commas(line[start + 1 : end])) > 1]
    return max(pairs, key=lambda p: p[1] - p[0], default=None)


def _split_at_commas(text: str) -> list[str]:
    """Pieces between commas outside of inner brackets and strings, commas kept."""
    inside = _brackets(text)
    pieces, last, quote = [], 0, ""
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == "," and not any(start < position < end for start, end, _ in inside):
            pieces.append(text[last : position + 1].strip())
            last = position + 1
    rest = text[last:].strip()
    return [*pieces, rest] if rest else [*pieces[:-1], pieces[-1].rstrip(",")] if pieces else [text]


def _wrap_docstring(code: str) -> str:
    """Wrap a one-line docstring that is too long."""

    def wrap(match: re.Match) -> str:
        indent, text = match[1], match[2]
        if len(match[0]) <= WIDTH:
            return match[0]
        first, _, rest = text.partition(". ")
        paragraphs = [f"{first}." if rest else first, rest]
        body = [
            textwrap.fill(p, WIDTH, initial_indent=indent, subsequent_indent=indent).strip() for p in paragraphs if p
        ]
        return f'{indent}"""' + f"\n\n{indent}".join(body) + f'\n{indent}"""'

    return re.sub(r'^( *)"""([^"\n]*)"""$', wrap, code, count=1, flags=re.M)


def statement_text(node: cst.CSTNode) -> str:
    """A top-level statement with the comments above it."""
    kept = [line for line in getattr(node, "leading_lines", []) if line.comment is not None]
    return cst.Module([node.with_changes(leading_lines=kept)]).code


def names_in(node: cst.CSTNode) -> list[str]:
    """Every name that a piece of code mentions, in order, once."""
    return list(dict.fromkeys(names(node)))
