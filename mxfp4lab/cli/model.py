"""``model``: how good the time model is on rows it has not seen; ``--refit`` fits it again from the published rows."""

from __future__ import annotations

import argparse

from mxfp4lab.cli.common import add_json_argument, answer, quiet_stdout


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--refit", action="store_true", help="fit it anew from data/ and write its parameters there")
    add_json_argument(parser)


def main(args: argparse.Namespace) -> int:
    with quiet_stdout(args.json):
        from mxfp4lab import model
        from mxfp4lab.model import tables

        written = str(model.write_model(model.refit())) if args.refit else ""
        document = model.load_document()
        table = tables.cross_validation_table(document)
    data = {
        "model_version": model.MODEL_VERSION,
        "evidence": "modelled",
        "cross_validation": document["cross_validation"],
        "written": written,
    }
    lines = [f"time model {model.MODEL_VERSION}, on published rows that it has not seen:", "", table.to_string()]
    answer(args, data, "\n".join([*lines, *(["", f"written: {written}"] if written else [])]))
    return 0
