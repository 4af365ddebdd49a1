"""The house's size: rooms with their lines, and the budgets that it keeps. `make size`; exit code 1 above a budget.

Lines are counted as `wc -l` counts them. Test data (corpora of submissions and mutations) is no test code.
"""

import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINES, FILES, TEST_LINES = 18_500, 130, 11_000
CORPORA = ("tests/submissions/", "tests/mutations/")


def tracked(pattern: str) -> list[str]:
    """Python files under version control."""
    listed = subprocess.run(["git", "ls-files", pattern], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def lines(name: str) -> int:
    return (ROOT / name).read_bytes().count(b"\n")


def main() -> int:
    module = {name: lines(name) for name in tracked("mxfp4lab/*.py")}
    tests = sum(lines(name) for name in tracked("tests/*.py") if not name.startswith(CORPORA))
    rooms, files = Counter(), Counter()
    for name, count in module.items():
        room = name.split("/")[1].removesuffix(".py")
        rooms[room] += count
        files[room] += 1
    for room, count in rooms.most_common():
        print(f"{count:7,}  {files[room]:3}  {room}")
    budgets = (("lines of mxfp4lab", sum(module.values()), LINES), ("files of mxfp4lab", len(module), FILES),
               ("lines of tests", tests, TEST_LINES))  # fmt: skip
    for what, count, most in budgets:
        print(f"{count:7,}  of at most {most:,} {what}{'' if count <= most else ': ABOVE THE BUDGET'}")
    return int(any(count > most for _, count, most in budgets))


if __name__ == "__main__":
    sys.exit(main())
