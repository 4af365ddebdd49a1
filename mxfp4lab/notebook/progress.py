"""Progress that a terminal, papermill's log and a notebook all read well: few lines, each saying something."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from mxfp4lab.notebook.session import is_live


class Progress:
    """Prints at most one line per ``every`` seconds and stage, and always a stage's last.

    Args:
        every: seconds between two lines of one stage.
        out: where lines go; standard output by default.
        clock: seconds; replaced in tests.
    """

    def __init__(
        self, every: float = 10.0, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.every = every
        self._out = out
        self._clock = clock
        self._start = clock()
        self._last: dict[str, float] = {}

    def __call__(self, stage: str, done: int, total: int, note: str = "") -> None:
        """Say that ``done`` of ``total`` steps of ``stage`` are over."""
        now = self._clock()
        # The first line of a stage also waits: a stage that is over at once says one line only.
        last = self._last.setdefault(stage, now)
        if done < total and now - last < self.every:
            return
        self._last[stage] = now
        self.say(f"{stage} {done}/{total}{f', {note}' if note else ''}")

    def say(self, line: str) -> None:
        """Print one line with the seconds since the start."""
        print(f"[{self._clock() - self._start:6.1f} s] {line}", file=self._out or sys.stdout, flush=True)


class LiveView:
    """One output that is replaced in place, at most ``per_second`` times a second; silent where nobody watches.

    ``show`` takes a function that draws the object, called only when it is time to draw.
    """

    def __init__(
        self,
        per_second: float = 2.0,
        live: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
        publish: Callable[[Any], Any] | None = None,
    ) -> None:
        self.live = is_live() if live is None else live
        self._gap = 1.0 / per_second
        self._clock = clock
        self._publish = publish
        self._handle: Any = None
        self._last = float("-inf")

    def show(self, draw: Callable[[], Any], *, last: bool = False) -> bool:
        """Redraw if it is time to, or if this is the ``last`` call; True if something was drawn."""
        now = self._clock()
        if not self.live or (not last and now - self._last < self._gap):
            return False
        self._last = now
        shown = draw()
        if self._publish is not None:
            self._publish(shown)
        elif self._handle is None:
            from IPython.display import display

            self._handle = display(shown, display_id=True)
        else:
            self._handle.update(shown)
        return True
