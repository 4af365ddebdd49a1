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


def whole(low: int, high: int, help: str = "", *, auto: bool = False, multiple: int = 1) -> Parameter:
    """A whole number; ``200.0`` and ``"2e2"`` are whole numbers too. With ``auto``, "auto" and None give None."""
    allowed = f"a {f'multiple of {multiple}' if multiple > 1 else 'whole number'} from {low} to {high}"

    def parse(value: Any) -> int | None:
        if auto and (value is None or (isinstance(value, str) and value.strip().lower() == "auto")):
            return None
        number = _number(value)
        if number != int(number):
            raise ValueError("not a whole number")
        if not low <= number <= high:
            raise ValueError("out of range")
        if number % multiple:
            raise ValueError(f"not a multiple of {multiple}")
        return int(number)

    return Parameter(parse, allowed + (' or "auto"' if auto else ""), help)


def switch(help: str = "") -> Parameter:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}

    def parse(value: Any) -> bool:
        if isinstance(value, (bool, int, float)) and value in (0, 1):
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
        if not isinstance(value, (str, list, tuple)):
            raise ValueError("neither text nor a list")
        parts = (
            [part.strip(" '\"") for part in value.strip(" []()").split(",")] if isinstance(value, str) else list(value)
        )
        parts = [part for part in parts if part]
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
    injected = _assigned(history[places[-1]]) if places else set()
    defaults = {name for source in history[: places[-1]] for name in _assigned(source)} if places else set()
    known = ", ".join(declared)
    for name in injected:
        if name not in declared:
            hint = f" ({_did_you_mean(name, declared)})".replace(" ()", "")
            raise ParameterError(f"unknown parameter {name!r}{hint}; this notebook has: {known}")
        if name not in defaults:
            raise ParameterError(
                f"parameter {name} was given above the cell of defaults, which overwrote it: is that cell tagged "
                "'parameters'?"
            )
    for name in declared:
        if name not in namespace:
            raise ParameterError(
                f"parameter {name} is not set: run the cell tagged 'parameters' first; it sets {known}"
            )
    return {name: parameter.read(name, namespace[name]) for name, parameter in declared.items()}


def _assigned(source: str) -> set[str]:
    """Names that the statements of a cell give a value to."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return set()
    targets = [t for s in body if isinstance(s, ast.Assign) for t in s.targets]
    targets += [s.target for s in body if isinstance(s, ast.AnnAssign) and s.value is not None]
    return {target.id for target in targets if isinstance(target, ast.Name)}


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
