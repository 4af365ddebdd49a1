"""A plan around kernels of your own: arguments by name, buffers by the names of the task's inputs."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from mxfp4lab.config import GemmConfig
from mxfp4lab.hardware import MAX_WORKGROUP_THREADS, WAVE_LANES
from mxfp4lab.plan.data import BYTES, Buffer, Plan, Ref, TritonLaunch
from mxfp4lab.shapes import Shape, parse_shape

OPTIONS = ("num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim", "num_ctas", "kpack")
OUTPUT = "c"


def own_plan(
    shape: Shape | Sequence[int] | str,
    *launches: TritonLaunch,
    workspaces: Mapping[str, tuple] | None = None,
    name: str = "own",
) -> Plan:
    """A plan of launches made by `own_launch`, over the task's inputs.

    Buffers that kernels may name: `a` [M, K] bf16, `b` [N, K] bf16, `b_q` and `b_shuffle` [N, K // 2] u8, `b_scale_sh`
    [ceil256(N), ceil8(K / 32)] u8, the output `c` [M, N] bf16, and the workspaces.

    Args:
        shape: anything `parse_shape` accepts.
        launches: in the order in which they run.
        workspaces: name -> (sizes, dtype), or (sizes, dtype, fill) with what every element holds before the first
            call; dtype is "bf16", "u8", "f32" or "i32". Without a fill the emulator puts NaN there.
        name: what results are labelled with.

    Raises:
        ValueError: no launch, a bad shape or workspace, an argument that names no buffer, or no launch that is given c.
    """
    from mxfp4lab.plan.launches import input_buffers

    shape = parse_shape(shape)
    if not launches:
        raise ValueError("launches: at least one is needed: own_plan(shape, own_launch(kernel, grid, ...))")
    buffers = [*input_buffers(shape), Buffer(OUTPUT, (shape.m, shape.n), "bf16", "output")]
    for key, given in (workspaces or {}).items():
        buffers.append(_workspace(key, given, {buffer.name for buffer in buffers}))
    known = {buffer.name for buffer in buffers}
    named = [(launch.name, value.buffer) for launch in launches for _, value in launch.args if isinstance(value, Ref)]
    for kernel, buffer in named:
        if buffer not in known:
            close = difflib.get_close_matches(buffer, sorted(known), n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise ValueError(f"{kernel}: {buffer!r} is no buffer{hint}; allowed: {', '.join(sorted(known))}")
    if OUTPUT not in {buffer for _, buffer in named}:
        raise ValueError(f"launches: none is given the output buffer {OUTPUT!r}")
    return Plan(name, GemmConfig(), shape, "gfx950", tuple(buffers), tuple(launches), OUTPUT)


def own_launch(kernel: Any, grid: int | Sequence[int], /, **arguments: Any) -> TritonLaunch:
    """One launch of a `@triton.jit` kernel, as `kernel[grid](...)` would be.

    Args:
        kernel: defined anywhere, a notebook cell included.
        grid: programs along x, or along x, y, z.
        arguments: every parameter of the kernel by its name: a buffer's name (text) for a pointer, a number for a
            scalar or a constexpr; and compiler options: num_warps, num_stages, waves_per_eu, matrix_instr_nonkdim.

    Raises:
        ValueError: a parameter that is missing or unknown, a grid that is none, or no Triton kernel.
    """
    from mxfp4lab.gfx950 import unwrap

    kernel = unwrap(kernel)
    label = kernel.fn.__name__
    sizes = (grid,) if isinstance(grid, int) else tuple(grid)
    if not 1 <= len(sizes) <= 3 or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in sizes):
        raise ValueError(f"grid={grid!r} of {label} must be one to three positive integers")
    parameters = {parameter.name: parameter for parameter in kernel.params}
    unknown = sorted(set(arguments) - set(parameters) - set(OPTIONS))
    if unknown:
        raise ValueError(f"{label} has no parameter {unknown[0]!r}; it has {', '.join(parameters)}")
    missing = [n for n, p in parameters.items() if n not in arguments and not p.has_default]
    if missing:
        raise ValueError(f"{label} needs a value for {', '.join(missing)}")
    args, constants = [], []
    for key, parameter in parameters.items():
        value = arguments.get(key, parameter.default if parameter.has_default else None)
        if parameter.is_constexpr:
            constants.append((key, value))
        elif value is not None:
            args.append((key, Ref(value) if isinstance(value, str) else _number(label, key, value)))
        else:
            constants.append((key, None))
    options = tuple((key, arguments[key]) for key in OPTIONS if key in arguments and key not in parameters)
    threads = WAVE_LANES * dict(options).get("num_warps", 4)
    if threads > MAX_WORKGROUP_THREADS:
        most = MAX_WORKGROUP_THREADS // WAVE_LANES
        raise ValueError(f"{label}: num_warps={arguments['num_warps']} is {threads} threads; allowed: at most {most}")
    x, y, z = (*sizes, 1, 1)[:3]
    return TritonLaunch(label, kernel, (x, y, z), tuple(args), tuple(constants), options)


def _number(label: str, key: str, value: Any) -> int | float:
    if isinstance(value, (bool, int, float)):
        return value
    raise ValueError(f"{label}: {key}={type(value).__name__}; allowed: the name of a buffer, or a number")


def _workspace(key: str, given: Any, taken: set[str]) -> Buffer:
    form = "(sizes, dtype) or (sizes, dtype, fill)"
    if key in taken:
        raise ValueError(f"workspaces: {key!r} is taken; other names: {', '.join(sorted(taken))}")
    if not isinstance(given, (tuple, list)) or len(given) not in (2, 3):
        raise ValueError(f"workspaces: {key}={given!r}; allowed: {form}")
    sizes, dtype, fill = (*given, None)[:3]
    sizes = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    if dtype not in BYTES or not sizes or any(not isinstance(n, int) or n < 1 for n in sizes):
        raise ValueError(f"workspaces: {key}={given!r}; allowed: {form} with dtype {', '.join(BYTES)}")
    return Buffer(key, sizes, dtype, "workspace", fill)
