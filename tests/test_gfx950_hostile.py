"""Damaged machine code: whatever happens is an error with a name, never numpy's and never a hang."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
import torch
from gfx950_kernels import fused
from gfx950_machine import launch
from test_gfx950_kernels import problem

from mxfp4lab.gfx950 import EmulationError, IsaError, parse_amdgcn, run

SHAPE = (16, 64, 512)
MNEMONICS = [
    "v_add_u32_e32",
    "v_mul_hi_u32",
    "v_cndmask_b32_e64",
    "v_fma_f32",
    "s_add_i32",
    "s_cbranch_scc1",
    "ds_read_b128",
    "global_load_dwordx4",
    "v_mov_b32_dpp",
    "v_pk_mul_f32",
    "s_and_saveexec_b64",
    "v_cmp_lt_i32_e64",
    "buffer_load_dword",
    "v_mfma_scale_f32_16x16x128_f8f6f4",
    "ds_write_b8",
    "s_barrier",
    "v_perm_b32",
    "v_lshlrev_b64",
    "s_branch",
    "s_endpgm",
]
OPERANDS = [
    "v0",
    "v300",
    "v[4:7]",
    "v[8:9]",
    "s5",
    "s[4:5]",
    "s[6:9]",
    "vcc",
    "exec",
    "m0",
    "0",
    "-1",
    "0xffffffff",
    "1.0",
    "a3",
    "off",
    "-v2",
    "|v3|",
    "scc",
    "sext(v1)",
    "v[0:0]",
]


def damage(text: str, generator: random.Random, edits: int) -> str:
    """The text with operands, mnemonics or whole lines of its instructions changed."""
    lines = text.split("\n")
    code = [i for i, line in enumerate(lines) if re.match(r"\t[a-z]+_", line)]
    for _ in range(edits):
        at = generator.choice(code)
        kind = generator.randrange(5)
        words = lines[at].split(";")[0].strip().split(None, 1)
        if not words:
            continue
        operands = words[1].split(", ") if len(words) > 1 else []
        if kind == 0:
            words[0] = generator.choice(MNEMONICS)
        elif kind == 1 and operands:
            operands[generator.randrange(len(operands))] = generator.choice(OPERANDS)
        elif kind == 2 and operands:
            operands.pop(generator.randrange(len(operands)))
        elif kind == 3:
            operands.append(generator.choice(OPERANDS))
        else:
            lines[at] = ""
            continue
        lines[at] = "\t" + words[0] + " " + ", ".join(operands)
    return "\n".join(lines)


def attempt(text: str, lds_bytes: int, **modes) -> str:
    """What became of a text: the name of its error, or "ran"."""
    from types import SimpleNamespace

    m, n, k = SHAPE
    a, b_q, b_s, _, _, c = problem(m, n, k)
    try:
        program, descriptor = parse_amdgcn(text, lds_bytes=lds_bytes)
        compiled = SimpleNamespace(program=program, descriptor=descriptor)
        run(compiled, (1, 1, 1), a, b_q, b_s, torch.zeros_like(c), m, n, k, max_blocks=400, **modes)
    except (IsaError, EmulationError, ValueError) as error:
        assert "internal error" not in str(error), str(error)
        return type(error).__name__
    return "ran"


@pytest.mark.parametrize("modes", [{}, {"races": True, "count": True}], ids=["plain", "checked"])
def test_damaged_kernels(modes):
    compiled = fused()
    generator = random.Random(len(modes))
    seen: dict[str, int] = {}
    for round_ in range(30):
        what = attempt(damage(compiled.asm, generator, 1 + round_ % 3), compiled.descriptor.lds_bytes, **modes)
        seen[what] = seen.get(what, 0) + 1
    assert len(seen) >= 3, seen  # some run, some are refused, some go wrong while they run


@pytest.mark.torture
def test_thousands_of_damaged_kernels():
    compiled = fused()
    generator = random.Random(2026)
    for round_ in range(4000):
        modes = {"races": True} if round_ % 4 == 0 else {}
        attempt(damage(compiled.asm, generator, 1 + round_ % 4), compiled.descriptor.lds_bytes, **modes)


def test_a_loop_without_end_is_ended():
    body = """
\ts_load_dwordx2 s[4:5], s[0:1], 0x0
\tv_mov_b32_e32 v1, 0
.LOOP:
\tv_add_u32_e32 v2, 1, v2
\tglobal_store_dword v1, v2, s[4:5]
\ts_branch .LOOP"""
    with pytest.raises(EmulationError, match="runs too long: more than 3000 blocks"):
        launch(body, np.zeros(4), max_blocks=3000)
