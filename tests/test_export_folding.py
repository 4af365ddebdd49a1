"""What folding leaves means what stood there: loops of one pass, arithmetic, aliases, prose."""

from __future__ import annotations

import textwrap

import libcst as cst
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxfp4lab.export.prose import (
    docstring_of,
    docstring_without,
    mentions,
    trimmed,
    with_docstring,
    with_values,
    without,
)
from mxfp4lab.export.simplify import Substitute
from mxfp4lab.export.tidy import drop_unused, forwarded, single_assignments
from mxfp4lab.export.unroll import unrolled


def definition(source: str) -> cst.FunctionDef:
    return cst.parse_module(textwrap.dedent(source).strip() + "\n").body[0]


def code(node: cst.FunctionDef) -> str:
    return cst.Module([node]).code


def ran(source: str, *arguments: object) -> object:
    names = {"static_range": range, "gl": type("gl", (), {"static_range": range})}
    exec(source, names)
    return names["f"](*arguments)


# loops of one pass ----------------------------------------------------------------------------------------------------

TILES_OF_ONE = """
def f(x, wide, rounds):
    # One offset a tile.
    offsets = ()
    shifts = ()
    for tile in gl.static_range(1):
        group = (x * 1 + tile) * 8
        if wide:
            shifts = shifts + (group % 3 + tile,)
        else:
            shifts = shifts + (group % 5,)
        offsets = offsets + (group - shifts[tile],)
    parts = ()
    for step in gl.static_range(rounds):
        for tile in static_range(0, 1):
            # Each with its offset.
            parts = parts + (offsets[tile] + step,)
    accs = ()
    for tile in gl.static_range(1):
        accs = accs + (0,)
    for step in gl.static_range(rounds):
        new_accs = ()
        for tile in gl.static_range(1):
            new_accs = new_accs + (accs[tile] + parts[step * 1 + tile],)
        accs = new_accs
    memories = ()
    for tile in gl.static_range(1):
        memories = memories + (accs[tile] * 2,)
    for tile in gl.static_range(1):
        out = memories[tile] + tile
    return out
"""


def test_a_loop_of_one_pass_and_its_tuples_are_written_out() -> None:
    node = drop_unused(forwarded(single_assignments(unrolled(definition(TILES_OF_ONE)))))
    text = code(node)
    assert "static_range(1)" not in text and "tile" not in text.replace("a tile", "")
    assert "offset = group - shift" in text and "acc = acc + parts[step]" in text and "memory = acc * 2" in text
    assert "# One offset a tile." in text and "# Each with its offset." in text
    assert "parts = parts + (offset + step,)" in text, "several rounds stay a tuple"
    for arguments in ((3, True, 4), (3, False, 1), (10, True, 0)):
        assert ran(text, *arguments) == ran(TILES_OF_ONE, *arguments)


KEPT = {
    "more passes": ("for i in static_range(2):\n        x += i\n    return x", "static_range(2)"),
    "a count from elsewhere": ("for i in static_range(n):\n        x += i\n    return x", "static_range(n)"),
    "its variable is read later": ("for i in static_range(1):\n        x += i\n    return x + i", "static_range(1)"),
    "its variable is set": ("for i in static_range(1):\n        i += 2\n        x += i\n    return x", "i += 2"),
    "it is left early": ("for i in static_range(1):\n        if x: break\n        x += 5\n    return x", "break"),
    "the tuple is handed on": ("t = ()\n    t = t + (x,)\n    return t", "t + (x,)"),
    "the tuple grows": ("t = ()\n    for i in range(n):\n        t = t + (i,)\n    return t[0]", "t + (i,)"),
    "the tuple gets two": ("t = ()\n    t = t + (x,)\n    t = t + (n,)\n    return t[0]", "t + (n,)"),
    "another place is read": ("t = ()\n    t = t + (x,)\n    return t[0] if x else t[-1]", "t[-1]"),
    "the tuple comes from elsewhere": ("t = y\n    return t[0] + x + n", "t[0]"),
    "branches may both be taken": (
        "t = ()\n    if x:\n        t = t + (x,)\n    if n:\n        t = t + (n,)\n    return t[0]", "t + (n,)"),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_what_is_no_single_pass_or_value_stays(name: str) -> None:
    body, kept = KEPT[name]
    source = f"def f(x, n, y=(7,)):\n    {body}\n"
    text = code(unrolled(definition(source)))
    assert kept in text
    assert ran(text, 3, 2) == ran(source, 3, 2)


def test_a_singular_that_is_taken_is_not_taken_twice() -> None:
    loop = "for i in static_range(1):\n        rows = rows + (x,)"
    source = f"def f(x, row):\n    rows = ()\n    {loop}\n    return rows[0] - row\n"
    text = code(unrolled(definition(source)))
    assert "rows = x" in text and ran(text, 5, 2) == 3


# arithmetic and names -------------------------------------------------------------------------------------------------

NUMBERS = st.sampled_from(["0", "1", "x", "y", "n", "7"])
OPERATORS = st.sampled_from(["+", "-", "*", "//", "%"])
EXPRESSIONS = st.recursive(
    NUMBERS, lambda inner: st.tuples(inner, OPERATORS, inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"), max_leaves=8
)


@settings(max_examples=300, deadline=None)
@given(EXPRESSIONS, st.sampled_from(["0", "1", "a", "a - b"]))
def test_simplified_expressions_have_the_same_value(text: str, written: str) -> None:
    bare = text[1:-1] if text.startswith("(") and text.endswith(")") else text
    node = cst.parse_expression(text).visit(Substitute({"n": cst.parse_expression(written)}))
    made = cst.Module([]).code_for_node(node)
    values = {"x": 5, "y": 3, "a": 11, "b": 4}
    values["n"] = eval(written, dict(values))
    try:
        expected = eval(text, dict(values))
    except ZeroDivisionError:
        return
    assert eval(made, dict(values)) == expected, (bare, made)


def test_what_is_left_of_an_operation_keeps_its_brackets() -> None:
    node = cst.parse_expression("(a - b + n) * c").visit(Substitute({"n": cst.Integer("0")}))
    assert cst.Module([]).code_for_node(node) == "(a - b) * c"
    node = cst.parse_expression("n * c").visit(Substitute({"n": cst.parse_expression("a + b")}))
    assert cst.Module([]).code_for_node(node) == "(a + b) * c"


@pytest.mark.parametrize(("body", "expected"), [
    ("y = x\n    return y + y", "return x + x"),
    ("y: int = x\n    return y", "return x"),
    ("if x:\n        y = x\n    else:\n        y = 2\n    z = y\n    return z", "return y"),
    ("y = 3\n    return y + x", "return 3 + x"),
])  # fmt: skip
def test_a_name_for_a_name_is_not_kept(body: str, expected: str) -> None:
    source = f"def f(x):\n    {body}\n"
    text = code(drop_unused(single_assignments(definition(source))))
    assert expected in text and ran(text, 4) == ran(source, 4)


@pytest.mark.parametrize("body", [
    "y = x\n    x = x + 1\n    return y + x",
    "z = x\n    for i in range(3):\n        z = x\n        x = x + 1\n    return z",
    "y = 1\n    if x:\n        z = y\n    else:\n        z = x\n    y = 2\n    return z + y",
])  # fmt: skip
def test_a_name_whose_meaning_changes_is_kept(body: str) -> None:
    source = f"def f(x):\n    {body}\n"
    text = code(drop_unused(forwarded(single_assignments(definition(source)))))
    assert ran(text, 4) == ran(source, 4)


@pytest.mark.parametrize(("call", "stays"), [
    ('gl.inline_asm_elementwise("s_waitcnt vmcnt(0)", "=v,0", [x], dtype=gl.int32, is_pure=False, pack=1)', True),
    ('gl.inline_asm_elementwise("v_mov_b32 $0, $1", "=v,v", [x], dtype=gl.int32, is_pure=True, pack=1)', False),
    ("gl.atomic_add(x, 1)", True),
    ("gl.load(x)", False),
    ("stores_are_done(x)", True),
    ("halved(x)", False),
])  # fmt: skip
def test_what_does_more_than_give_a_value_stays_though_nobody_reads_it(call: str, stays: bool) -> None:
    node = definition(f"def f(x):\n    y = {call}\n    return x\n")
    assert (call in code(drop_unused(node, {"stores_are_done"}))) is stays


def test_an_assumption_that_says_nothing_goes() -> None:
    text = code(drop_unused(definition("def f(x):\n    tl.assume(0 >= 0)\n    tl.assume(x >= 0)\n    return x\n")))
    assert "0 >= 0" not in text and "tl.assume(x >= 0)" in text


# prose ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "expected"), [
    ("A tile. With SPLIT_K > 1 it is a part. The end.", "A tile. The end."),
    ("Sums tiles; with STAGED they pass through LDS; in order.", "Sums tiles; in order."),
    ("With INSIDE one thing; always another.", "Always another."),
    ("See ``helper``. A helper is nice.", "A helper is nice."),
    ("SPLIT_KS and ``helpers`` stay.", "SPLIT_KS and ``helpers`` stay."),
    ("Only SPLIT_K.", ""),
])  # fmt: skip
def test_sentences_leave_with_what_they_speak_of(text: str, expected: str) -> None:
    assert without(text, {"SPLIT_K", "STAGED", "INSIDE", "helper"}) == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("With FAST it guesses. With SAFE it looks.", "It guesses."),
    ("Unless FAST it waits. Unless SAFE, the compiler moves it.", "The compiler moves it."),
    ("With FAST and SAFE both.", ""),
])  # fmt: skip
def test_an_option_that_is_always_on_needs_no_condition(text: str, expected: str) -> None:
    assert without(text, {"FAST", "SAFE"}, {"FAST": True, "SAFE": False}) == expected


def test_a_single_capital_and_a_plain_word_are_no_names() -> None:
    assert not mentions("K past the end; rows of A; MASK_ROWS", {"K", "rows", "MASK"})
    assert mentions("``rows`` is gone", {"rows"}) and mentions("``x + rows // 2``", {"rows"})


def test_entries_of_arguments_leave_with_their_parameters() -> None:
    said = docstring_without(
        "Sums.\n\nArgs:\n    a_ptr: A; with FUSED bf16.\n    b_ptr, s_ptr: B and\n        its scales.\n    d: gone.\n\n"
        "Returns:\n    C.",
        {"d", "FUSED"},
    )
    assert said == "Sums.\n\nArgs:\n    a_ptr: A.\n    b_ptr, s_ptr: B and\n        its scales.\n\nReturns:\n    C."


def test_numbers_stand_for_constants_that_have_one_value() -> None:
    said = with_values("``[ROWS, STEP_K // 32, 2 * STEP_K]`` of STEP_K", {"STEP_K": 128})
    assert said == "``[ROWS, 4, 256]`` of STEP_K"
    assert with_values("``x % STEP_K // 32``", {"STEP_K": 128}) == "``x % 128 // 32``", "left to right"


def test_docstring_and_comments_are_trimmed_and_the_rest_stays() -> None:
    source = '''
    def f(x):
        """Sums x.

        With FAST it guesses. It is exact.
        """
        # Once. Twice with FAST.
        y = x + x
        # Nothing else.
        return y
    '''
    text = code(trimmed(definition(source), {"FAST"}, {}))
    assert '"""Sums x.\n\n    It is exact.\n    """' in text and "# Once.\n    y" in text and "# Nothing else." in text
    assert "FAST" not in text


def test_a_docstring_that_is_too_long_for_a_line_becomes_paragraphs() -> None:
    long = "One program makes a tile of C. " + "It is long " * 10 + "indeed."
    node = with_docstring(definition("def f(x):\n    return x\n"), long)
    assert max(map(len, code(node).splitlines())) <= 120
    assert docstring_of(node).startswith("One program makes a tile of C.\n\nIt is long")
    assert docstring_of(with_docstring(node, "")) == ""
