"""``model``: how good the time model is on rows it has not seen; ``--refit`` fits it again from the published rows."""

from __future__ import annotations

import argparse

from mxfp4lab.cli.common import add_json_argument, answer, quiet_stdout


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--refit", action="store_true", help="fit it anew from data/ and write its parameters there")
    add_json_argument(parser)


def main(args: argparse.Namespace) -> int:
    with quiet_stdout(args.json):
        from mxfp4lab import display, fit, model

        written = str(fit.write_model(fit.refit())) if args.refit else ""
        document = model.load_document()
    schemes = document["cross_validation"]
    data = {"model_version": model.MODEL_VERSION, "evidence": "modelled", "cross_validation": schemes,
            "written": written}  # fmt: skip
    rows = [
        (name, found["rows"], f"{found['median']:.1%}", f"{found['p90']:.1%}", f"{found['max']:.1%}",
         f"{found['covered']:.0%}" if "covered" in found else "",
         ", ".join(f"{shape} {value:.2f}" for shape, value in found.get("spearman", {}).items()))
        for name, found in schemes.items()
    ]  # fmt: skip
    headers = ("published rows", "rows", "median error", "p90", "largest", "in 80 % intervals", "rank correlation")
    lines = [f"time model {model.MODEL_VERSION} on published rows:", "", display.text_table(headers, rows)]
    answer(args, data, "\n".join([*lines, *(["", f"written: {written}"] if written else [])]))
    return 0
