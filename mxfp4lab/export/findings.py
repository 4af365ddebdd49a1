"""What the lint says about a line of a submission."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Finding:
    """One remark.

    Attributes:
        line: 1-based line of the file; 0 where the file as a whole is meant.
        rule: short name of the rule.
        severity: "error" (the file is refused) or "warning".
        message: one sentence.
    """

    line: int
    rule: str
    severity: str
    message: str

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return f"{where}{self.message} [{self.rule}]"


def error(line: int, rule: str, message: str) -> Finding:
    """A remark for which a file is refused."""
    return Finding(line, rule, "error", message)


def warning(line: int, rule: str, message: str) -> Finding:
    """A remark that an author should read."""
    return Finding(line, rule, "warning", message)
