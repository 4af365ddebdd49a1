"""What the commands share: how a plan is named on the command line, and how an answer is printed."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from mxfp4lab.shapes import Shape, parse_shape, task_seed

if TYPE_CHECKING:
    from mxfp4lab.plan import Plan

MAX_CONFIG_CHARACTERS = 10_000


def add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    """--variant, --shape, --config, --json."""
    parser.add_argument("--variant", required=True, help="which implementation, e.g. fused_preshuffled")
    parser.add_argument("--shape", required=True, metavar="M,N,K", help="GEMM shape, e.g. 64,7168,2048")
    parser.add_argument(
        "--config", metavar="JSON", help="e.g. '{\"block_m\": 16}'; without it the variant's default for the shape"
    )
    add_json_argument(parser)


def add_json_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output, nothing else")


def add_seed_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", default=None, help="of the inputs; without it the task's own for the shape, else 42")


def plan_from(args: argparse.Namespace, arch: str = "gfx950") -> Plan:
    """The plan that the arguments name.

    Raises:
        ValueError: a bad shape, an unknown variant, a config that is not JSON or not valid.
    """
    shape = parse_shape(args.shape)
    config = parse_config(args.config)
    from mxfp4lab.plan import build_plan

    return build_plan(args.variant, config, shape, arch)


def parse_config(text: str | None) -> Any:
    """A `GemmConfig` from JSON text; None for None.

    Raises:
        ValueError: not a JSON object, an unknown field, or a value of the wrong type.
    """
    if text is None:
        return None
    from mxfp4lab.config import GemmConfig

    if len(text) > MAX_CONFIG_CHARACTERS:
        raise ValueError(f"config: {len(text)} characters; at most {MAX_CONFIG_CHARACTERS} are read")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"config={_short(text)} is not JSON ({_first_line(error)}); write '{{\"block_m\": 16}}'"
        ) from None
    return GemmConfig.from_dict(values)


def whole_number(name: str, value: Any, low: int, high: int) -> int:
    """Read a whole number given as text.

    Raises:
        ValueError: naming the option, the value and the range.
    """
    try:
        number = int(str(value))
    except ValueError:
        number = None
    if number is None or not low <= number <= high:
        raise ValueError(f"{name}={_short(str(value))}; allowed: a whole number from {low} to {high}")
    return number


def seed_from(args: argparse.Namespace, shape: Shape) -> int:
    if args.seed is None:
        return task_seed(shape)
    return whole_number("seed", args.seed, 0, 2**63 - 1)


@contextlib.contextmanager
def quiet_stdout(json_wanted: bool) -> Iterator[None]:
    """With --json whatever else is printed goes to standard error."""
    with contextlib.redirect_stdout(sys.stderr) if json_wanted else contextlib.nullcontext():
        yield


def answer(args: argparse.Namespace, data: Mapping[str, Any], text: str) -> None:
    """Print the answer: one JSON object, or text for people."""
    print(json.dumps(_plain(data), allow_nan=False) if args.json else text)


def describe(plan: Plan) -> dict[str, Any]:
    """What a plan is, as JSON values: the head of every answer."""
    return {
        "variant": plan.variant,
        "shape": {"m": plan.shape.m, "n": plan.shape.n, "k": plan.shape.k},
        "arch": plan.arch,
        "config": plan.config.to_dict(),
        "config_id": plan.config.config_id,
    }


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: null stands for both."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
