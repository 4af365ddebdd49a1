"""Writes the submission file: kernels, launch code, the table of configs, `custom_kernel`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

from mxfp4lab.export.fold import Folder
from mxfp4lab.export.formulas import Formula
from mxfp4lab.export.layout import formatted, function_text, names_in, statement_text
from mxfp4lab.export.recipe import Recipe, Row, Step, Structure
from mxfp4lab.export.sources import Definition, definitions_of, in_order, is_kernel
from mxfp4lab.export.templates import (
    ADAPT,
    AITER_CONFIG,
    AMD_OPTIONS_LINE,
    CHOOSE,
    CUSTOM_KERNEL,
    DROP_BOTH,
    DROP_CONVERT,
    DROP_OPTIONS,
    FALLBACK,
    ONE_WAY_KERNEL,
    WORKSPACE,
    WORKSPACE_FILLED,
)

HEADER = "#!POPCORN leaderboard amd-mxfp4-mm\n#!POPCORN gpu MI355X\n"
OTHER_GPU_HEADER = "#!POPCORN leaderboard amd-mxfp4-mm\n# Written for {arch}: the leaderboard's own GPU is MI355X.\n"
AMD_OPTIONS = ("waves_per_eu", "matrix_instr_nonkdim")
FILL = 112  # columns of a table's line
_COMPILER_DEFAULTS = {"waves_per_eu": 0}
SOFTWARE_CONVERT = "sw_bits"
_TORCH_DTYPES = {"bf16": "torch.bfloat16", "u8": "torch.uint8", "f32": "torch.float32", "i32": "torch.int32"}
_INPUTS = ("a", "b", "b_q", "b_shuffle", "b_scale_sh")


def render(recipe: Recipe, about: str, knobs: Mapping[str, str] | None = None, arch: str = "gfx950") -> str:
    """The text of the file.

    Args:
        recipe: from `build_recipe`; more than one row for a shape makes the file choose among them at its first call.
        about: the docstring: what is in the file and where its configs come from.
        knobs: environment variables that the configs were chosen under, set before Triton is imported.
        arch: the target that the configs are for.
    """
    return formatted(_Writer(recipe, arch).text(about, dict(knobs or {})))


class _Writer:
    def __init__(self, recipe: Recipe, arch: str) -> None:
        self._recipe, self._arch = recipe, arch
        self._adapts = _runs_elsewhere(recipe)
        self._usual = _usual_options(recipe)
        self._folder = Folder(self._entries())
        doubles = self._folder.doubles()
        self._folder = Folder(self._entries(), doubles) if doubles else self._folder
        self._functions = self._folder.functions()
        self._by_name = {item.name: item for item in self._functions if item.is_entry}
        self._choosing = any(len(rows) > 1 for rows in recipe.rows.values())
        self._one_way = len(recipe.structures) == 1 and not self._choosing
        self._names = _structure_names(recipe.structures)

    # kernels ----------------------------------------------------------------------------------------------------------

    def _entries(self) -> list[tuple[Any, list[dict[str, object]]]]:
        """Each kernel with all combinations of constants that the table and the shapes can give it."""
        entries: dict[str, tuple[Any, list[dict[str, object]]]] = {}
        for row in self._recipe.all_rows():
            for step, values in zip(self._recipe.structures[row.structure].steps, row.values, strict=True):
                if step.fn is None:
                    continue
                environments = entries.setdefault(step.name, (step.fn, []))[1]
                for environment in _environments(step, values, self._adapts):
                    if environment not in environments:
                        environments.append(environment)
        return list(entries.values())

    def _kernel_text(self) -> str:
        """Constants and imports that the kernels use, then the kernels."""
        found: dict[str, Definition] = {}
        for item in self._functions:
            for name in names_in(item.node):
                target = item.source.globals.get(name)
                if name in ("tl", "triton", "torch") or name not in item.source.globals or is_kernel(target):
                    continue
                for definition in definitions_of(item.source.module, item.source.globals, name):
                    found.setdefault(definition.name, definition)
        ordered = in_order(found.values())
        self.imports = list(dict.fromkeys(statement_text(d.node) for d in ordered if d.kind == "import"))
        # A constant that a function computes stands behind that function.
        functions = {d.name for d in ordered if d.kind == "function"}
        constants = [d for d in ordered if d.kind == "constant"]
        computed = [d for d in constants if functions & set(names_in(d.node))]
        parts = [_constants_text([d for d in constants if d not in computed])]
        parts += [statement_text(d.node) for d in ordered if d.kind == "function"]
        parts += [_constants_text(computed)]
        parts += [function_text(item.node) for item in self._functions]
        return "\n\n\n".join(part for part in parts if part)

    # host code --------------------------------------------------------------------------------------------------------

    def _kept(self, step: Step) -> tuple[list[str], dict[str, Formula]]:
        """Table columns and formulas of a step that its kernel still takes."""
        if step.fn is None:
            return [], {}
        parameters = self._by_name[step.name].parameters()
        columns = [n for n in step.literals if n in parameters or (n in step.options and n not in self._usual)]
        return columns, {n: f for n, f in step.formulas.items() if n in parameters}

    def _named(self, structure: Structure, owner: int):
        """How a formula writes a constant of a step."""
        step = structure.steps[owner]
        columns, _ = self._kept(step)
        entry = self._by_name.get(step.name)

        def name(constant: str) -> str:
            if constant in columns:
                return f'{step.label}["{constant}"]'
            if entry is not None and constant in entry.folded:
                return repr(entry.folded[constant])
            values = {row.values[owner].get(constant) for row in self._recipe.all_rows()
                      if self._recipe.structures[row.structure] is structure}  # fmt: skip
            if len(values) != 1:
                raise ValueError(f"{step.name}: {constant} is needed for a size and is not in the table")
            return repr(values.pop())

        return name

    def _expression(self, formula: Formula, structure: Structure, owner: int) -> str:
        text = formula.render(self._named(structure, owner))
        return re.sub(r" \* 1\b(?![\d.])", "", text)

    def _structure_text(self, structure: Structure, name: str) -> str:
        labels = [step.label for step in structure.steps if step.fn is not None]
        said = ", then ".join(step.name for step in structure.steps)
        lines = [f"def {name}(data, M, N, K, {', '.join(labels)}):", f'    """Launches {said}."""']
        unpacked = [n if n in structure.inputs or n == "a" else "_" for n in _INPUTS]
        while unpacked[-1] == "_":
            unpacked.pop()
        tail = ", *_" if len(unpacked) < len(_INPUTS) else ""
        lines.append(f"    {', '.join(unpacked)}{tail} = data")
        for packed in [n for n in structure.inputs if n not in ("a", "b")]:
            lines.append(f"    {packed} = {packed}.view(torch.uint8)")
        dims = ", ".join(self._expression(d, structure, structure.output_owner) for d in structure.output_dims)
        lines.append(f"    {structure.output} = torch.empty(({dims}), dtype=torch.bfloat16, device=a.device)")
        for space in structure.workspaces:
            dims = ", ".join(self._expression(d, structure, space.owner) for d in space.dims)
            comma = "," if len(space.dims) == 1 else ""
            fill = "" if space.fill is None else f", fill={space.fill}"
            call = f'workspace("{space.name}", ({dims}{comma}), {_TORCH_DTYPES[space.dtype]}, a.device{fill})'
            lines.append(f"    {space.name} = {call}")
        for index, step in enumerate(structure.steps):
            lines += self._launch_lines(structure, index, step)
        rows = f"{structure.output}[:M]" if structure.output_padded else structure.output
        return "\n".join([*lines, f"    return {rows}"])

    def _launch_lines(self, structure: Structure, index: int, step: Step) -> list[str]:
        if step.fn is None:
            return self._prebuilt_lines(structure, step)
        grid = [self._expression(f, structure, index) for f in step.grid]
        while len(grid) > 1 and grid[-1] == "1":
            grid.pop()
        _, formulas = self._kept(step)
        taken = self._by_name[step.name].parameters()
        arguments = [value if isinstance(value, str) else self._expression(value, structure, index)
                     for name, value in step.args if name in taken]  # fmt: skip
        named = [f"{name}={self._expression(f, structure, index)}" for name, f in formulas.items()]
        grid_text = f"({', '.join(grid)}{',' if len(grid) == 1 else ''})"
        constants = f"on_this_gpu({step.label})" if self._adapts and self._amd_columns([step]) else step.label
        call = ", ".join([*arguments, *named, f"**{constants}"])
        return [f"    grid = {grid_text}", *self._stand_ins(structure, step), f"    {step.name}[grid]({call})"]

    @staticmethod
    def _stand_ins(structure: Structure, step: Step) -> list[str]:
        """A remark on pointers that a launch does not follow: the output is passed for each."""
        given = [name for name, value in step.args if value == structure.output]
        unused = [name for name in given if name not in (f"{structure.output}_ptr", "out_ptr")]
        return [f"    # {' and '.join(unused)}: not used without a split, so that any pointer does."] if unused else []

    @staticmethod
    def _prebuilt_lines(structure: Structure, step: Step) -> list[str]:
        """aiter's direct call: its arguments by name, whatever order the code object takes them in."""
        taken = {buffer for _, buffer in step.args}
        if taken != {"a_q", "b_shuffle", "a_scale_sh", "b_scale_sh", structure.output}:
            raise ValueError(f"a prebuilt GEMM on {', '.join(sorted(map(str, taken)))}: no call of aiter takes these")
        operands = ["a_q.view(dtypes.fp4x2)", "b_shuffle.view(dtypes.fp4x2)", "a_scale_sh.view(dtypes.fp8_e8m0)",
                    "b_scale_sh.view(dtypes.fp8_e8m0)", structure.output]  # fmt: skip
        call = f"aiter.{step.name}({', '.join(operands)}, kernel, bpreshuffle=True, log2_k_split=log2_splits)"
        return ["    kernel, log2_splits = aiter_config(M, N, K)", f"    {call}"]

    # table ------------------------------------------------------------------------------------------------------------

    def _row_lines(self, row: Row, head: str, tail: str) -> list[str]:
        """`KEY: (run, dict(...), dict(...)),`, on one line where it fits; without `run` where there is one only."""
        structure = self._recipe.structures[row.structure]
        tables = []
        for step, values in zip(structure.steps, row.values, strict=True):
            if step.fn is not None:
                tables.append([f"{n}={_value(values[n])}" for n in _ordered(self._kept(step)[0], step.options)])
        if self._one_way and len(tables) == 1:
            return _filled(f"{head}dict(", tables[0], f"){tail}")
        names = [] if self._one_way else [self._names[row.structure]]
        line = f"{head}({', '.join([*names, *('dict(' + ', '.join(table) + ')' for table in tables)])}){tail}"
        if len(line) <= FILL:
            return [line]
        blank = " " * (len(head) - len(head.lstrip()))
        lines = [f"{head}(", *(f"{blank}    {name}," for name in names)]
        for table in tables:
            lines += _filled(f"{blank}    dict(", table, "),")
        return [*lines, f"{blank}){tail}"]

    def _table_text(self) -> str:
        said = "the constants of its launches" if self._one_way else "how it is launched, the constants of each launch"
        lines = [f"# (M, N, K): {said}.", "CANDIDATES = {" if self._choosing else "CONFIGS = {"]
        for shape, rows in self._recipe.rows.items():
            key = f"    ({shape.m}, {shape.n}, {shape.k}): "
            if self._choosing:
                lines += [f"{key}[", *(line for row in rows for line in self._row_lines(row, " " * 8, ",")), "    ],"]
            else:
                lines += self._row_lines(rows[0], key, ",")
        default = self._row_lines(self._recipe.default, "DEFAULT = ", "")
        default[-1] += "  # fmt: skip" if len(default) > 1 else ""
        return "\n".join([*lines, "}  # fmt: skip", FALLBACK, *default])

    # the file ---------------------------------------------------------------------------------------------------------

    def text(self, about: str, knobs: Mapping[str, str]) -> str:
        """Everything, top to bottom."""
        has_workspace = any(s.workspaces for s in self._recipe.structures)
        filled = any(w.fill is not None for s in self._recipe.structures for w in s.workspaces)
        uses_aiter = any(step.fn is None for s in self._recipe.structures for step in s.steps)
        imports = ["import functools"] if self._adapts or uses_aiter else []
        imports += ["import os"] if knobs else []
        imports += ["import time"] if self._choosing else []
        standard = "\n".join(imports)
        settings = "\n".join(f'os.environ.setdefault("{name}", "{value}")' for name, value in knobs.items())
        kernels = self._kernel_text()
        if uses_aiter:
            self.imports += [
                "import aiter",
                "from aiter import dtypes",
                "from aiter.ops.gemm_op_a4w4 import get_GEMM_config",
            ]
        common = ["import torch", "import triton", "import triton.language as tl", "from task import input_t, output_t"]
        third = "\n".join([*common, *self.imports])
        header = HEADER if self._arch == "gfx950" else OTHER_GPU_HEADER.format(arch=self._arch)
        head = "\n\n".join(part for part in (f'{header}"""{about.strip()}\n"""', standard, settings, third) if part)
        parts = [head, kernels]
        if has_workspace:
            parts.append(WORKSPACE_FILLED if filled else WORKSPACE)
        if uses_aiter:
            parts.append(AITER_CONFIG)
        parts += [self._structure_text(s, self._names[i]) for i, s in enumerate(self._recipe.structures)]
        parts.append(self._table_text())
        if self._adapts:
            parts.append(self._adapt_text())
        if self._choosing:
            parts.append(CHOOSE)
        elif self._one_way:
            star = "*" if sum(step.fn is not None for step in self._recipe.structures[0].steps) > 1 else ""
            parts.append(ONE_WAY_KERNEL.replace("@RUN@", self._names[0]).replace("@STAR@", star))
        else:
            parts.append(CUSTOM_KERNEL)
        return "\n\n\n".join(parts) + "\n"

    def _adapt_text(self) -> str:
        columns = self._amd_columns([step for s in self._recipe.structures for step in s.steps])
        options, converts = columns - {"CONVERT"}, "CONVERT" in columns
        lacks = ["MI355X's options"] * bool(options) + ["its conversion"] * converts
        adapted = DROP_BOTH if options and converts else DROP_OPTIONS if options else DROP_CONVERT
        said = ADAPT.replace("@LACKS@", f"others lack {' and '.join(lacks)}").replace("@ADAPTED@", adapted)
        return f"{AMD_OPTIONS_LINE}\n\n\n{said}" if options else said.replace("lack its", "lack MI355X's")

    def _amd_columns(self, steps: list[Step]) -> set[str]:
        """Table columns of launches that other GPUs do not take."""
        return {n for step in steps for n in self._kept(step)[0] if n in AMD_OPTIONS or n == "CONVERT"}


def _constants_text(definitions: list[Definition]) -> str:
    """Constants as their modules have them, a blank line between two modules."""
    texts = [
        "\n".join(statement_text(d.node, blank=True) for d in group).strip()
        for _, group in itertools.groupby(definitions, key=lambda d: id(d.module))
    ]
    return "\n\n".join(texts)


def _ordered(columns: list[str], options: list[str]) -> list[str]:
    """Constants as the kernel takes them, then the compiler's options in their usual order."""
    usual = ("num_warps", "num_stages", *AMD_OPTIONS)
    named = [n for n in usual if n in columns and n in options]
    return [n for n in columns if n not in options] + named + [n for n in columns if n in options and n not in usual]


def _filled(head: str, pieces: list[str], tail: str, width: int = FILL) -> list[str]:
    """A call broken between its arguments, the lines below aligned with its bracket."""
    lines, current = [], head
    for position, piece in enumerate(pieces):
        text = piece + (tail if position == len(pieces) - 1 else ",")
        if len(current) > len(head) and len(current) + 1 + len(text) > width:
            lines.append(current)
            current = " " * len(head)
        current += text if len(current) == len(head) else f" {text}"
    return [*lines, current]


def _value(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _environments(step: Step, values: Mapping[str, object], adapts: bool) -> list[dict[str, object]]:
    """Constants of one row: what the table says, with every outcome of the conditions on the shape.

    Args:
        adapts: the file also serves GPUs without the conversion instruction.
    """
    known = {name: value for name, value in values.items() if name not in step.options}
    conditions = sorted({f.text for f in step.formulas.values() if " != " in f.text})
    converts = [{}]
    if adapts and str(known.get("CONVERT", "")).startswith("hw_"):
        converts.append({"CONVERT": SOFTWARE_CONVERT})
    found = []
    for outcome in itertools.product((False, True), repeat=len(conditions)):
        truth = dict(zip(conditions, outcome, strict=True))
        flags = {name: truth[f.text] for name, f in step.formulas.items() if f.text in truth}
        found += [known | flags | convert for convert in converts]
    return found


def _runs_elsewhere(recipe: Recipe) -> bool:
    """Does the file hold anything that is gfx950's alone, in kernels that run on other GPUs without it?

    Gluon's layouts and instructions, and aiter's prebuilt GEMM, run on gfx950 only.
    """
    if any(step.fn is None or "gluon" in type(step.fn).__module__ for s in recipe.structures for step in s.steps):
        return False
    return any(name in AMD_OPTIONS or (name == "CONVERT" and str(values[name]).startswith("hw_"))
               for row in recipe.all_rows() for values in row.values for name in values)  # fmt: skip


def _usual_options(recipe: Recipe) -> set[str]:
    """Compiler options that every row leaves at the compiler's default: nobody would write them."""
    said: dict[str, set[object]] = {}
    for row in recipe.all_rows():
        for step, values in zip(recipe.structures[row.structure].steps, row.values, strict=True):
            for name in step.options:
                said.setdefault(name, set()).add(values.get(name))
    return {name for name, value in _COMPILER_DEFAULTS.items() if said.get(name) == {value}}


def _structure_names(structures: list[Structure]) -> list[str]:
    """`run_gemm`, `run_quantize_gemm_reduce`, ...: told apart by their kernels, their memory, else by a letter."""
    names = ["run_" + "_".join(step.label for step in s.steps) for s in structures]
    full = ["run_" + "_".join(step.name for step in s.steps) for s in structures]
    if len({*zip(names, full, strict=True)}) == len({*full}):  # one label may stand for several kernels
        names = [f if names.count(n) > 1 and full.count(f) == 1 else n for n, f in zip(names, full, strict=True)]
    memory = ["_with_" + s.workspaces[0].name if s.workspaces else "" for s in structures]
    chosen = [n + w if names.count(n) > 1 else n for n, w in zip(names, memory, strict=True)]
    letters = "abcdefghijklmnopqrstuvwxyz"
    return [n if chosen.count(n) == 1 else f"{n}_{letters[chosen[:i].count(n) % 26]}" for i, n in enumerate(chosen)]
