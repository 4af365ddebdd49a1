"""Notebook parameters: declared once, parsed by type, refused by name.

papermill hands over whatever a shell could say (``-p smoke false`` is the string ``"false"``, ``-p workers 2e0`` the
float 2.0, ``-p shape 64,7168,2048`` a string) and only warns about a name that the notebook does not have. Here a
value of the wrong type is an error that says what is allowed, and so is an unknown name.
"""

from __future__ import annotations

import ast
import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mxfp4lab.paths import REPO_ROOT
from mxfp4lab.shapes import ACCEPTED_FORMS, parse_shape

INJECTED_HEAD = "# Parameters"
"""First line of the cell that papermill injects."""


class ParameterError(ValueError):
    """A parameter is unknown, missing or has a value that is not allowed."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the sentence, without thirty lines of our own code above it."""
        return [f"ParameterError: {self}"]


@dataclass(frozen=True)
class Parameter:
    """How one parameter is read.

    Attributes:
        parse: raw value -> value; raises ValueError for one that is not allowed.
        allowed: what is allowed, in words, for messages.
        help: what it decides, one short line; the comment behind the parameter in the notebook says the same.
    """

    parse: Callable[[Any], Any]
    allowed: str
    help: str = ""

    def read(self, name: str, value: Any) -> Any:
        """Parse ``value``. Raises ParameterError naming the parameter, the value and what is allowed."""
        try:
            return self.parse(value)
        except (ValueError, TypeError, OverflowError) as error:
            why = str(error)
            if self.allowed in why or why.startswith(f"{name}="):
                raise ParameterError(f"parameter {why if why.startswith(name) else f'{name}: {why}'}") from None
            raise ParameterError(
                f"parameter {name}={_short(value)}: {why + '; ' if why else ''}allowed: {self.allowed}"
            ) from None


def shape(help: str = "M,N,K of the GEMM") -> Parameter:
    return Parameter(parse_shape, ACCEPTED_FORMS, help)


def whole(low: int, high: int, help: str = "", *, auto: bool = False) -> Parameter:
    """A whole number; ``200.0`` and ``"2e2"`` are whole numbers too. With ``auto``, "auto" and None give None."""

    def parse(value: Any) -> int | None:
        if auto and (value is None or (isinstance(value, str) and value.strip().lower() == "auto")):
            return None
        number = _number(value)
        if number != int(number):
            raise ValueError("not a whole number")
        if not low <= number <= high:
            raise ValueError("out of range")
        return int(number)

    return Parameter(parse, f"a whole number from {low} to {high}" + (' or "auto"' if auto else ""), help)


def number(low: float, high: float, help: str = "") -> Parameter:
    def parse(value: Any) -> float:
        found = _number(value)
        if not low <= found <= high:
            raise ValueError("out of range")
        return float(found)

    return Parameter(parse, f"a number from {low:g} to {high:g}", help)


def switch(help: str = "") -> Parameter:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}

    def parse(value: Any) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, (int, float)) and value in (0, 1):
            return bool(value)
        if isinstance(value, str) and value.strip().lower() in words:
            return words[value.strip().lower()]
        raise ValueError("neither true nor false")

    return Parameter(parse, "true or false (also yes/no, on/off, 1/0)", help)


def choice(allowed: Iterable[str], help: str = "") -> Parameter:
    known = tuple(allowed)

    def parse(value: Any) -> str:
        if isinstance(value, str) and value.strip() in known:
            return value.strip()
        raise ValueError(_did_you_mean(value, known))

    return Parameter(parse, "one of " + ", ".join(known), help)


def names(allowed: Iterable[str], help: str = "", every: str = "all") -> Parameter:
    """One or several of ``allowed``, as a comma-separated text or a list; ``every`` stands for all of them."""
    known = tuple(allowed)

    def parse(value: Any) -> tuple[str, ...]:
        if isinstance(value, str):
            text = value.strip()
            if len(text) >= 2 and text[0] + text[-1] in ("[]", "()"):
                text = text[1:-1]
            parts: list[Any] = [part.strip().strip("'\"").strip() for part in text.split(",")]
            parts = [part for part in parts if part]
        elif isinstance(value, (list, tuple)):
            parts = list(value)
        else:
            raise ValueError("neither text nor a list")
        if parts == [every]:
            return known
        if not parts:
            raise ValueError("no name given")
        for part in parts:
            if part not in known:
                raise ValueError(_did_you_mean(part, known))
        return tuple(dict.fromkeys(parts))

    return Parameter(parse, f'"{every}", or one or several of {", ".join(known)}', help)


def folder(help: str = "") -> Parameter:
    """A folder, which need not exist. A relative one is taken from the repository, not from the working directory."""

    def parse(value: Any) -> Path:
        if not isinstance(value, (str, Path)) or not str(value).strip():
            raise ValueError("not a path")
        if "\0" in str(value):
            raise ValueError("a path holds no NUL")
        path = Path(value).expanduser()
        path = path if path.is_absolute() else REPO_ROOT / path
        if path.exists() and not path.is_dir():
            raise ValueError("a file is in the way")
        return path

    return Parameter(parse, "a folder, relative to the repository or absolute", help)


def text(pattern: str, allowed: str, help: str = "") -> Parameter:
    """Free text that matches the whole of ``pattern``; ``allowed`` says the pattern in words."""

    def parse(value: Any) -> str:
        if isinstance(value, str) and re.fullmatch(pattern, value.strip()):
            return value.strip()
        raise ValueError("")

    return Parameter(parse, allowed, help)


def read_parameters(
    namespace: Mapping[str, Any], declared: Mapping[str, Parameter], history: Sequence[str] = ()
) -> dict[str, Any]:
    """Read every declared parameter out of a notebook's namespace.

    Args:
        namespace: the notebook's globals.
        declared: name -> how to read it.
        history: sources of the cells that ran so far, oldest first. The last one that papermill injected (its first
            line is ``# Parameters``) says which names were given.

    Raises:
        ParameterError: an injected name is not declared (it is misspelt, or the notebook has no such parameter); a
            declared one is not set, or was injected before the defaults; a value is not allowed.
    """
    places = [i for i, source in enumerate(history) if source.lstrip().startswith(INJECTED_HEAD)]
    injected = _assignments([history[places[-1]]]) if places else {}
    defaults = _assignments(history[: places[-1]]) if places else {}
    known = ", ".join(declared)
    for name in injected:
        if name not in declared:
            hint = _did_you_mean(name, declared)
            raise ParameterError(
                f"unknown parameter {name!r}{f' ({hint})' if hint else ''}; this notebook has: {known}"
            )
    values = {}
    for name, parameter in declared.items():
        if name not in namespace:
            raise ParameterError(
                f"parameter {name} is not set: run the cell tagged 'parameters' first; it sets {known}"
            )
        given = injected.get(name, _NOT_LITERAL)
        if given is not _NOT_LITERAL and name not in defaults and given != namespace[name]:
            raise ParameterError(
                f"parameter {name}={_short(given)} was given but the notebook overwrote it with "
                f"{_short(namespace[name])}: is the cell of defaults tagged 'parameters'?"
            )
        values[name] = parameter.read(name, namespace[name])
    return values


_NOT_LITERAL = object()


def _assignments(cells: Iterable[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for source in cells:
        try:
            body = ast.parse(source).body
        except (SyntaxError, ValueError):
            continue
        for statement in body:
            if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is None:
                continue
            try:
                value = ast.literal_eval(statement.value)
            except (ValueError, SyntaxError, RecursionError):
                value = _NOT_LITERAL  # papermill writes float('nan') for a NaN
            for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                if isinstance(target, ast.Name):
                    found[target.id] = value
    return found


def _number(value: Any) -> int | float:
    if isinstance(value, str):
        if not re.fullmatch(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", value) or len(value) > 40:
            raise ValueError("not a number")
        try:
            value = int(value)
        except ValueError:
            value = float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("not a number")
    if not math.isfinite(value):
        raise ValueError("not a finite number")
    return value


def _did_you_mean(value: Any, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(value)[:80], list(known), n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else ""


def _short(value: Any) -> str:
    said = repr(value)
    return said if len(said) <= 80 else said[:77] + "..."
