"""``python -m tests.mutations [NAME ...]``: the table, and with ``--write`` the file that documentation shows."""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from pathlib import Path

COLUMNS = ("mutation", "where", "fault", "caught_by", "also", "note")
TABLE = Path(__file__).parents[2] / "data" / "mutations.csv"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description="What catches each fault.")
    parser.add_argument("names", nargs="*", help="only these mutations")
    parser.add_argument("--write", action="store_true", help=f"write {TABLE.name}")
    args = parser.parse_args()
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    from tests.mutations.detect import examine
    from tests.mutations.table import ALL, place_of

    unknown = sorted(set(args.names) - {mutation.name for mutation in ALL})
    if unknown:
        parser.error(f"unknown mutation {', '.join(unknown)}")
    rows, other = [], 0
    for mutation in ALL:
        if args.names and mutation.name not in args.names:
            continue
        started = time.perf_counter()
        verdict = examine(mutation)
        also = " ".join(name for name in verdict.detectors if name != verdict.first)
        caught_by = verdict.first or "nobody"
        rows.append((mutation.name, place_of(mutation), mutation.about, caught_by, also, mutation.proof))
        mark = "" if verdict.first == mutation.caught_by else f"  NOT AS EXPECTED: {mutation.caught_by or 'nobody'}"
        other += bool(mark)
        print(f"{mutation.name:40} {caught_by:15} {also:25} "
              f"{time.perf_counter() - started:5.1f} s{mark}", flush=True)  # fmt: skip
        if args.names:
            for name, message in verdict.said.items():
                print(f"    {name}: {message}")
    caught = sum(row[3] != "nobody" for row in rows)
    print(f"{caught} of {len(rows)} caught, {len(rows) - caught} with a reason why nobody can, {other} not as expected")
    if args.write and not args.names and not other:
        with open(TABLE, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(rows)
        print(f"written: {TABLE}")
    return 1 if other else 0


if __name__ == "__main__":
    sys.exit(main())
