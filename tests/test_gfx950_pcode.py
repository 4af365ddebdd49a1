"""Integer instructions against AMD's own pseudo-code, as the package tinygrad carries it: a second source of meaning.

Only pseudo-code that is a row of plain integer assignments is translated; the rest is left to the other tests.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from gfx950_machine import Machine

from mxfp4lab.gfx950.isa import scalar, vector

pcode = pytest.importorskip(
    "tinygrad.runtime.autogen.amd.cdna.str_pcode", reason="tinygrad ([codeobject]) is not installed"
)

VECTOR_OK = re.compile(r"v_[a-z0-9_]*_(u32|i32|b32|u16|i16|b16|u24|i24)$")
FIELD = re.compile(r"\b(S[0-2]|D0|tmp|SCC)(\[(\d+) : (\d+)\])?\.([uib])(\d+)\b(\[(\d+)\])?")


def translate(text: str) -> list[tuple[str, str]] | None:
    """Pseudo-code -> [(target, Python expression)], or None where it is more than plain integer assignments."""
    if any(
        word in text
        for word in ("lambda", " then", "for ", "VGPR", "declare", "MEM", ".f32", ".f16", "EXEC", "VCC", "{")
    ):
        return None
    assignments = []
    for line in text.split(";\n"):
        line = re.sub(r"//.*", "", line).strip()
        if not line:
            continue
        match = re.fullmatch(r"(D0|tmp|SCC)(?:\.([uib])(\d+))? = ([^=].*)", line, re.S)
        if not match:
            return None
        expression = match[4].replace("\n", " ")
        ternary = re.fullmatch(r"(.+?) \? (.+?) : ([^:\]]+)", expression)
        if ternary and ternary[2].count("?") == 0:
            expression = f"(({ternary[2]}) if ({ternary[1]}) else ({ternary[3]}))"
        expression = re.sub(r"(\d+)'([UIB])\(", r"cast\2(\1, ", expression)
        expression = re.sub(r"\d+'(\d+)U", r"\1", expression)
        expression = re.sub(r"\b(0x[0-9a-f]+|\d+)(?:ULL|LL|U)\b", r"\1", expression)
        expression = FIELD.sub(_field, expression).replace("<>", "!=").replace("&&", " and ").replace("||", " or ")
        expression = re.sub(r"\bSCC\b", "int(SCC)", expression)
        if re.search(r"[?;'\[{]|S[0-2]\.|v_m", expression):
            return None
        assignments.append((match[1], expression))
    return assignments or None


def _field(match: re.Match) -> str:
    name, high, low, sign, bits, bit = match[1], match[3], match[4], match[5], int(match[6]), match[8]
    value = f"part({name}, {high}, {low})" if high else name
    value = f"cast{'I' if sign == 'i' else 'U'}({bits}, {value})"
    return f"part({value}, {bit}, {bit})" if bit else value


def cast_unsigned(bits: int, value: int) -> int:
    return int(value) & ((1 << bits) - 1)


def cast_signed(bits: int, value: int) -> int:
    value = int(value) & ((1 << bits) - 1)
    return value - (1 << bits) if value >> (bits - 1) else value


FUNCTIONS = {
    "castU": cast_unsigned,
    "castB": cast_unsigned,
    "castI": cast_signed,
    "abs": abs,
    "int": int,
    "part": lambda value, high, low: int(value) >> low & ((1 << (high - low + 1)) - 1),
    "signext": lambda value: value,
    "signext_from_bit": lambda value, bits: cast_signed(bits, value) if bits else 0,
}


def evaluate(assignments, sources, destination=0, scc=0) -> tuple[int, int]:
    """(D0, SCC) after the assignments."""
    names = {"D0": destination, "SCC": scc, "tmp": 0, **{f"S{i}": value for i, value in enumerate(sources)}}
    for target, expression in assignments:
        names[target] = eval(expression, {"__builtins__": {}, **FUNCTIONS}, names)
    return int(names["D0"]), int(bool(names["SCC"]))


def known(table) -> dict[str, list[tuple[str, str]]]:
    """Mnemonics of a table whose pseudo-code translates."""
    found = {}
    for key, text in pcode.PCODE.items():
        name = re.sub(r"_e(32|64)$", "", key.name.lower())
        if name in table and name not in found:
            assignments = translate(text)
            if assignments:
                found[name] = assignments
    return found


VECTOR = {name: code for name, code in known(vector.ROWS).items() if VECTOR_OK.match(name)}
SCALAR = {name: code for name, code in known(scalar.ROWS).items() if scalar.ROWS[name].results[0] != "ovfl"}


def test_enough_of_the_pseudo_code_is_understood():
    assert len(VECTOR) >= 40 and len(SCALAR) >= 60, (len(VECTOR), len(SCALAR))


@pytest.mark.parametrize("name", sorted(VECTOR))
def test_vector(name):
    row = vector.ROWS[name]
    count, half = len(row.sources), row.results[0] in ("u16", "i16")
    rng = np.random.default_rng(len(name))
    machine = Machine(1)
    sources = rng.integers(0, 1 << 32, (count, 64), dtype=np.uint32)
    sources[:, :8] = rng.integers(0, 40, (count, 8))
    for i, value in enumerate(sources):
        machine.v(i + 1)[:] = value
    machine.execute(f"{name} v8, " + ", ".join(f"v{i + 1}" for i in range(count)))
    for lane in range(64):
        value, _ = evaluate(VECTOR[name], [int(s[lane]) for s in sources])
        assert int(machine.v(8)[0, lane]) == value & (0xFFFF if half else 0xFFFFFFFF), (name, lane)


@pytest.mark.parametrize("name", sorted(SCALAR))
def test_scalar(name):
    row = scalar.ROWS[name]
    compares, result = row.results == ("scc",), row.results[0]
    kinds = (*("d" for _ in range(result[0] == "+")), *(kind for kind in row.sources if kind != "scc"))
    rng = np.random.default_rng(len(name))
    machine = Machine(64)
    operands, values = [], []
    destination = rng.integers(0, 1 << 32, 64, dtype=np.uint32)
    machine.s(4)[:] = destination
    for i, kind in enumerate(kinds):
        if kind in ("k", "ku"):
            constant = int(rng.integers(0, 1 << 16))
            operands.append(str(constant))
            values.append([constant if kind == "ku" else cast_signed(16, constant)] * 64)
            continue
        if kind == "d":
            operands.append("s4")
            continue
        words = rng.integers(0, 1 << 32, (2, 64), dtype=np.uint32)
        words[:, :8] = rng.integers(0, 70, (2, 8))
        n = 8 + 4 * i
        machine.s(n)[:], machine.s(n + 1)[:] = words
        wide = kind.endswith("64")
        operands.append(f"s[{n}:{n + 1}]" if wide else f"s{n}")
        values.append([int(low) | (int(high) << 32 if wide else 0) for low, high in words.T])
    machine.group.scc[:] = rng.random(64) < 0.5
    before = machine.group.scc.copy()
    wide = result.endswith("64")
    target = [] if compares or "d" in kinds else ["s[4:5]" if wide else "s4"]
    machine.execute(f"{name} " + ", ".join(target + operands))
    sets_scc = any(t == "SCC" for t, _ in SCALAR[name])
    for wave in range(64):
        sources = [v[wave] for v in values]
        value, scc = evaluate(SCALAR[name], sources, int(destination[wave]), int(before[wave]))
        assert bool(machine.group.scc[wave]) == (bool(scc) if sets_scc else before[wave]), (name, wave, sources)
        if not compares:
            got = int(machine.pair(4)[wave]) if wide else int(machine.s(4)[wave])
            assert got == value & ((1 << (64 if wide else 32)) - 1), (name, wave, [hex(s) for s in sources])
