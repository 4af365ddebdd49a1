"""HTML and plain text of the lab's objects: one look, readable in JupyterLab's light and dark themes.

Colours are taken from the theme's own variables where there is one, and every colour stands beside a word, so that
nothing is said by colour alone. An object that mixes in `Shown` lists its facts and tables once; both forms hold them.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

# Okabe-Ito hues, darkened where needed: ink on badge has a contrast of at least 4.5:1, a badge on either page 3:1.
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
_EDGE = "1px solid var(--jp-border-color2, rgba(128,128,128,.4))"
_CLEAR = "background:transparent"  # JupyterLab stripes the rows of tables
# Front ends take text between dollar signs for a formula; inline assembly has many.
_TABLE = '<table class="mathjax_ignore tex2jax_ignore" style="border-collapse:collapse;margin:4px 0">'
_NUMERAL = re.compile(r"[-+]?\d[\d,]*(\.\d+)?([eE][-+]?\d+)?(\s?%|=)?")  # "3=" is a shared rank

Pairs = Mapping[str, Any] | Iterable[tuple[str, Any]]


class Html(str):
    """HTML that `facts` and `table` put in unescaped; only for text built by this module."""


@dataclass(frozen=True)
class Grid:
    """A table among the `lines` of a `Shown`."""

    headers: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""


class Shown:
    """Mixin: `title` and `lines` say what a person sees; a notebook shows a card, a terminal the same as text."""

    if TYPE_CHECKING:  # an attribute or a property of the class that mixes in

        @property
        def title(self) -> str: ...

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # IPython would take the __repr__ of a dataclass before a base's.
        setattr(cls, "_repr_pretty_", Shown._repr_pretty_)  # noqa: B010

    def lines(self) -> Iterable[tuple[str, Any] | Grid | str]:
        """(name, value) for a fact, a `Grid` for a table, text for a sentence; a value may be a `badge`."""
        raise NotImplementedError

    def _parts(self) -> list[Any]:
        """Facts in a row joined to one list."""
        parts: list[Any] = []
        for line in self.lines():
            if not isinstance(line, tuple):
                parts.append(line)
            elif parts and isinstance(parts[-1], list):
                parts[-1].append(line)
            else:
                parts.append([line])
        return parts

    def __str__(self) -> str:
        text = [self.title] if self.title else []
        for part in self._parts():
            if isinstance(part, Grid):
                text += [text_table(part.headers, part.rows), *filter(None, [part.caption])]
            else:
                text.append(text_facts("", part) if isinstance(part, list) else _text(part))
        return "\n".join(text)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        body = ""
        for part in self._parts():
            if isinstance(part, Grid):
                body += table(part.headers, part.rows, part.caption)
            else:
                body += facts(part) if isinstance(part, list) else f"<div>{_cell(part)}</div>"
        return str(card(self.title, body))


def escape(value: Any) -> str:
    """Text safe inside HTML, quotes included."""
    return html.escape(str(value), quote=True)


def badge(text: Any, tone: str) -> Html:
    """A small filled label; ``tone`` is a key of `TONES`."""
    back, ink = TONES[tone]
    style = f"background:{back};color:{ink};border-radius:3px;padding:1px 6px;white-space:nowrap"
    return Html(f'<span style="{style}">{escape(text)}</span>')


def stacked(first: Any, *below: Any) -> Html:
    """A cell of several lines: the first as it is, those below small and wrapped; empty ones leave no line."""
    small = ""
    for text in filter(None, below):
        room = "" if isinstance(text, Html) else "opacity:.75;"
        room += "white-space:nowrap" if len(text) <= 40 or room == "" else "white-space:normal;min-width:170px"
        small += f'<div style="font-size:11px;{room}">{_cell(text)}</div>'
    return Html(f"{_cell(first)}{small}")


def card(title: str, body: str) -> Html:
    """A titled box; ``body`` is HTML, ``title`` is text."""
    box = "border-radius:4px;padding:8px 12px;margin:4px 0;width:fit-content;min-width:min(100%,720px);max-width:100%"
    paper = "box-sizing:border-box;overflow-x:auto;background:var(--jp-layout-color1, transparent)"
    head = f'<div style="font-weight:600;margin-bottom:6px">{escape(title)}</div>' if title else ""
    style = f"{_FONT};border:{_EDGE};{box};{paper}"
    return Html(f'<div class="mathjax_ignore tex2jax_ignore" style="{style}">{head}{body}</div>')


def facts(pairs: Pairs) -> Html:
    """Name and value, a line each, as HTML; a value that is an `Html` is taken as it is."""
    name_style = "text-align:left;padding:1px 14px 1px 0;vertical-align:top;opacity:.8;white-space:nowrap"
    rows = "".join(
        f'<tr style="{_CLEAR}"><td style="{name_style}">{_cell(name)}</td>'
        f'<td style="text-align:left;padding:1px 0;max-width:900px">{_cell(value)}</td></tr>'
        for name, value in _items(pairs)
    )
    return Html(f"{_TABLE}{rows}</table>")


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "") -> Html:
    """An HTML table: numbers right, text left; a cell that is an `Html` is taken as it is."""
    rows = [list(row) for row in rows]
    numeric = _number_columns(rows, len(headers))
    head = "".join(
        f'<th style="text-align:{"right" if right else "left"};padding:2px 10px 2px 0;border-bottom:{_EDGE};'
        f'vertical-align:bottom">{escape(name)}</th>'
        for name, right in zip(headers, numeric, strict=True)
    )
    body = "".join(f'<tr style="{_CLEAR}">{"".join(map(_table_cell, row))}</tr>' for row in rows)
    note = f'<div style="opacity:.75;margin-top:4px">{escape(caption)}</div>' if caption else ""
    return Html(f'{_TABLE}<tr style="{_CLEAR}">{head}</tr>{body}</table>{note}')


def text_table(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """The same table in plain text: columns padded, numbers right."""
    rows = [list(row) for row in rows]
    numeric = _number_columns(rows, len(headers))
    cells = [[str(name) for name in headers], *([_text(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headers))]
    lines = (
        [text.rjust(w) if right else text.ljust(w) for text, w, right in zip(row, widths, numeric, strict=True)]
        for row in cells
    )
    return "\n".join("  ".join(line).rstrip() for line in lines)


def text_facts(title: str, pairs: Pairs) -> str:
    """Title, then name and value a line each."""
    items = _items(pairs)
    width = max((len(_text(name)) for name, _ in items), default=0)
    lines = (f"  {_text(name):<{width}}  {_text(value)}" for name, value in items)
    return "\n".join([*filter(None, [title]), *lines])


def details(summary: str, body: str, *, opened: bool = False) -> Html:
    """A part that folds; ``summary`` is text, ``body`` is HTML."""
    head = f'<summary style="cursor:pointer">{escape(summary)}</summary>'
    return Html(f'<details{" open" if opened else ""} style="margin-top:6px">{head}{body}</details>')


def bars(terms: Mapping[str, float], unit: str, tone: str) -> Html:
    """Named parts of a sum as bars with their numbers, longest first."""
    whole = max(sum(terms.values()), 1e-12)

    def bar(value: float) -> Html:
        style = f"display:inline-block;height:9px;width:{max(1.0, 260 * value / whole):.0f}px"
        return Html(f'{value:.2f} {unit} <span style="{style};background:{TONES[tone][0]}"></span>')

    return facts((name, bar(value)) for name, value in sorted(terms.items(), key=lambda item: -item[1]) if value > 0)


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


def _items(pairs: Pairs) -> list[tuple[str, Any]]:
    return list(pairs.items() if isinstance(pairs, Mapping) else pairs)


def _number_columns(rows: Sequence[Sequence[Any]], columns: int) -> list[bool]:
    return [bool(rows) and all(_is_number(row[i]) or row[i] == "" for row in rows) for i in range(columns)]


def _is_number(value: Any) -> bool:
    """A number, or text that is one: both stand on the right of a column."""
    if isinstance(value, str):
        return not isinstance(value, Html) and _NUMERAL.fullmatch(value) is not None
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if isinstance(value, Html):
        return html.unescape(re.sub(r"<[^>]*>", "", value.replace("<div", " <div")))
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) < 1e4 else f"{value:.3g}"
    return str(value)


def _table_cell(value: Any) -> str:
    """Numbers and names stay on a line, sentences wrap: a table must not run out of the page."""
    sentence = isinstance(value, str) and not isinstance(value, Html) and len(value) > 60
    room = "white-space:normal;min-width:240px" if sentence else "white-space:nowrap"
    side = "right" if _is_number(value) else "left"
    return f'<td style="text-align:{side};padding:2px 10px 2px 0;vertical-align:top;{room}">{_cell(value)}</td>'


def _cell(value: Any) -> str:
    return str(value) if isinstance(value, Html) else escape(_text(value))
