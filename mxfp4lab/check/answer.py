"""An answer of the submission's process, read with suspicion: every field may be missing or anything."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from mxfp4lab.check.session import Session
from mxfp4lab.check.text import plain


class Failed(Exception):
    """The case failed; the message is the line for the log."""


@dataclass(frozen=True)
class Given:
    """A call's answer, checked field by field.

    Attributes:
        output: C, copied out of the window.
        reused: C lies where an earlier output lies.
        warnings: what the task accepts and a careful author would not.
        nanoseconds: of a timed call.
    """

    output: torch.Tensor
    reused: bool
    warnings: list[str]
    nanoseconds: float | None

    @classmethod
    def read(cls, answer: dict, session: Session) -> Given:
        """Check and convert every field.

        Raises:
            Failed: if it makes no sense, or says what fails a call whatever C holds.
        """
        with sensible():
            misuse, warnings = "", []
            if answer.get("tampered"):
                misuse = f"the submission replaced {listed(answer['tampered'])}"
            elif answer.get("changed"):
                misuse = f"custom_kernel changed its input {listed(answer['changed'])} (stricter than the task)"
            elif answer.get("view_of"):
                whose = plain(answer["view_of"])
                misuse = f"the output is a view of input {whose}, not a tensor of its own (stricter than the task)"
            elif answer.get("outlived"):
                misuse = "an output changed after it was returned: work goes on behind the call"
            if misuse:
                raise Failed(misuse)
            if not answer.get("contiguous", True):
                strides = tuple(int(n) for n in answer["strides"])
                warnings.append(f"C is not contiguous (strides {strides}): the task accepts that, its callers may not")
            if answer.get("threads"):
                running = int(answer["threads"])
                warnings.append(f"{running} thread(s) begun in the call still run: C must be whole when it returns")
            took = answer.get("nanoseconds")
            nanoseconds = None if took is None else duration(took)
            return cls(session.take(answer), "same_as_call" in answer, warnings, nanoseconds)


@contextlib.contextmanager
def sensible() -> Iterator[None]:
    """Around what reads an answer.

    Raises:
        Failed: if the answer makes no sense.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError, MemoryError) as error:
        raise Failed(f"the submission's process gave an answer that makes no sense ({plain(error, 200)})") from None


def listed(names: object) -> str:
    """Names in an answer as one printable line."""
    return plain(", ".join(map(str, names))) if isinstance(names, list) else plain(names)


def duration(nanoseconds: object) -> float:
    """A time that a clock can have given, in ns.

    Raises:
        ValueError: if it is not positive and finite.
    """
    value = float(nanoseconds)  # type: ignore[arg-type]
    if not 0 < value < math.inf:
        raise ValueError(f"a duration of {value} ns")
    return value
