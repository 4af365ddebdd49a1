"""HTML and plain text of the lab's objects: one look, readable in JupyterLab's light and dark themes.

Colours are taken from the theme's own variables where there is one, and every colour stands beside a word, so that
nothing is said by colour alone. Each object's plain form holds the same facts as its HTML form.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# Okabe-Ito hues; on either theme's background each keeps a contrast of at least 3:1 as a small filled badge with
# white or black text.
TONES = {
    "good": ("#00785a", "#ffffff"),
    "warn": ("#e69f00", "#000000"),
    "bad": ("#b8420b", "#ffffff"),
    "measured": ("#00785a", "#ffffff"),
    "emulated": ("#0072b2", "#ffffff"),
    "modelled": ("#8f5b84", "#ffffff"),
    "quiet": ("#6b6b6b", "#ffffff"),
}

_FONT = "font-family:var(--jp-ui-font-family, sans-serif);font-size:13px;color:var(--jp-ui-font-color1, inherit)"
# Front ends take text between dollar signs for a formula; inline assembly has many.
_NO_MATH = "mathjax_ignore tex2jax_ignore"
_EDGE = "1px solid var(--jp-border-color2, rgba(128,128,128,.4))"


_NUMERAL = re.compile(r"[-+]?\d[\d,]*(\.\d+)?([eE][-+]?\d+)?(\s?%|=)?")  # "3=" is a shared rank


class Html(str):
    """HTML that `facts` and `table` put in unescaped; only for text built by this module."""


def escape(value: Any) -> str:
    """Text safe inside HTML, quotes included."""
    return html.escape(str(value), quote=True)


def badge(text: Any, tone: str) -> Html:
    """A small filled label; ``tone`` is a key of `TONES`."""
    back, ink = TONES[tone]
    return Html(
        f'<span style="background:{back};color:{ink};border-radius:3px;padding:1px 6px;white-space:nowrap">'
        f"{escape(text)}</span>"
    )


def stacked(first: Any, *below: Any) -> Html:
    """A cell of several lines: the first as it is, those below small and wrapped; empty ones leave no line.

    Text is escaped; an `Html` is taken as it is.
    """
    small = ""
    for text in filter(None, below):
        if isinstance(text, Html):
            small += f'<div style="font-size:11px">{text}</div>'
            continue
        room = "white-space:nowrap" if len(text) <= 40 else "white-space:normal;min-width:170px"
        small += f'<div style="font-size:11px;opacity:.75;{room}">{escape(text)}</div>'
    return Html(f"{escape(first)}{small}")


def card(title: str, body: str) -> Html:
    """A titled box; ``body`` is HTML, ``title`` is text."""
    return Html(
        f'<div class="{_NO_MATH}" style="{_FONT};border:{_EDGE};border-radius:4px;padding:8px 12px;margin:4px 0;'
        f"width:fit-content;min-width:min(100%,720px);max-width:100%;box-sizing:border-box;"
        f'background:var(--jp-layout-color1, transparent);overflow-x:auto">'
        f'<div style="font-weight:600;margin-bottom:6px">{escape(title)}</div>{body}</div>'
    )


def facts(pairs: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> Html:
    """Name and value, a line each, as HTML; a value that is an `Html` is taken as it is."""
    pairs = pairs.items() if isinstance(pairs, Mapping) else pairs
    rows = "".join(
        f'<tr style="background:transparent"><td style="text-align:left;padding:1px 14px 1px 0;vertical-align:top;'
        f'opacity:.75;white-space:nowrap">{escape(name)}</td>'
        f'<td style="text-align:left;padding:1px 0;max-width:900px">{_cell(value)}</td></tr>'
        for name, value in pairs
    )
    return Html(f'<table class="{_NO_MATH}" style="border-collapse:collapse;margin:0">{rows}</table>')


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> Html:
    """An HTML table: numbers right, text left; a cell that is an `Html` is taken as it is."""
    rows = [list(row) for row in rows]
    head = "".join(
        f'<th style="text-align:{"right" if numbers else "left"};padding:2px 10px 2px 0;border-bottom:{_EDGE};'
        f'vertical-align:bottom">{escape(name)}</th>'
        for name, numbers in zip(headers, _number_columns(rows, len(headers)), strict=True)
    )
    body = "".join(
        '<tr style="background:transparent">'
        + "".join(
            f'<td style="text-align:{"right" if _is_number(value) else "left"};padding:2px 10px 2px 0;'
            f'vertical-align:top;{_wrapping(value)}">{_cell(value)}</td>'
            for value in row
        )
        + "</tr>"
        for row in rows
    )
    note = f'<div style="opacity:.75;margin-top:4px">{escape(caption)}</div>' if caption else ""
    head = f'<tr style="background:transparent">{head}</tr>'
    return Html(f'<table class="{_NO_MATH}" style="border-collapse:collapse;margin:4px 0">{head}{body}</table>{note}')


def text_table(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """The same table in plain text: columns padded, numbers right."""
    rows = [list(row) for row in rows]
    numeric = _number_columns(rows, len(headers))
    cells = [[str(name) for name in headers], *([_text(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headers))]
    lines = [
        "  ".join(
            text.rjust(w) if right else text.ljust(w) for text, w, right in zip(row, widths, numeric, strict=True)
        )
        for row in cells
    ]
    return "\n".join(line.rstrip() for line in lines)


def _number_columns(rows: Sequence[Sequence[Any]], columns: int) -> list[bool]:
    return [bool(rows) and all(_is_number(row[i]) or row[i] == "" for row in rows) for i in range(columns)]


def text_facts(title: str, pairs: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> str:
    """Title, then name and value a line each."""
    pairs = list(pairs.items() if isinstance(pairs, Mapping) else pairs)
    width = max((len(name) for name, _ in pairs), default=0)
    return "\n".join([title, *(f"  {name:<{width}}  {_text(value)}" for name, value in pairs)])


def spills_in_words(spilled_vgprs: int) -> tuple[str, str]:
    """(words, tone) for a count of spilled registers, by published MI355X times: each step costs more than the last.

    2 to 4 spilled registers went with about 1.1x the time, 8 to 16 with 1.3x, more with 1.6x and up.
    """
    if spilled_vgprs == 0:
        return "no spills", "good"
    if spilled_vgprs <= 4:
        return f"{spilled_vgprs} spilled (a little)", "warn"
    if spilled_vgprs <= 16:
        return f"{spilled_vgprs} spilled (costly)", "warn"
    return f"{spilled_vgprs} spilled (ruinous)", "bad"


def _is_number(value: Any) -> bool:
    """A number, or text that is one: both stand on the right of a column."""
    if isinstance(value, str):
        return not isinstance(value, Html) and _NUMERAL.fullmatch(value) is not None
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) < 1e4 else f"{value:.3g}"
    return str(value)


def _wrapping(value: Any) -> str:
    """Numbers and names stay on a line, sentences wrap: a table must not run out of the page."""
    sentence = isinstance(value, str) and not isinstance(value, Html) and len(value) > 60
    return "white-space:normal;min-width:240px" if sentence else "white-space:nowrap"


def _cell(value: Any) -> str:
    return str(value) if isinstance(value, Html) else escape(_text(value))


def details(summary: str, body: str, *, opened: bool = False) -> Html:
    """A part that folds; ``summary`` is text, ``body`` is HTML."""
    return Html(
        f'<details{" open" if opened else ""} style="margin-top:6px">'
        f'<summary style="cursor:pointer">{escape(summary)}</summary>{body}</details>'
    )


def bars(terms: Mapping[str, float], unit: str, tone: str) -> Html:
    """Named parts of a sum as bars with their numbers, longest first."""
    whole = max(sum(terms.values()), 1e-12)
    rows = "".join(
        f'<tr style="background:transparent"><td style="text-align:left;padding:1px 14px 1px 0;opacity:.75">'
        f'{escape(name)}</td><td style="text-align:right;padding:1px 8px 1px 0;white-space:nowrap">{value:.2f} {unit}'
        f'</td><td style="text-align:left;padding:1px 0"><span style="display:inline-block;height:9px;'
        f'width:{max(1.0, 260 * value / whole):.0f}px;background:{TONES[tone][0]}"></span></td></tr>'
        for name, value in sorted(terms.items(), key=lambda item: -item[1])
        if value > 0
    )
    return Html(f'<table class="{_NO_MATH}" style="border-collapse:collapse;margin:0">{rows}</table>')
