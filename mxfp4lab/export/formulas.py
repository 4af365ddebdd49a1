"""Finds the small formula behind a number of a launch: a grid, a mask, a size.

A plan holds numbers for one shape. A submission must hold formulas, so that one table of configs serves every shape.
Instead of repeating what the plan builder knows, the exporter builds plans for many shapes and looks for the shortest
expression in M, N, K and the launch's own constants that gives every number seen: it fits all of them or is not used.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

Values = Mapping[str, object]


@dataclass(frozen=True)
class Observation:
    """One number of one launch of one plan.

    Attributes:
        sizes: M, N, K.
        constants: the launch's constants and options by name.
        value: what is to be explained.
    """

    sizes: Values
    constants: Values
    value: object


@dataclass(frozen=True)
class Formula:
    """An expression as Python text and as a function.

    Attributes:
        text: uses M, N, K, `triton.cdiv`, and `{NAME}` for a constant of the launch.
        value: computes it from sizes and constants.
    """

    text: str
    value: Callable[[Values, Values], object]

    def render(self, name: Callable[[str], str]) -> str:
        """The text with every constant written as `name` says."""
        return self.text.format_map(_Named(name))

    def fits(self, observations: Sequence[Observation]) -> bool:
        """Does it give every number, type included?"""
        for seen in observations:
            try:
                got = self.value(seen.sizes, seen.constants)
            except (KeyError, TypeError, ZeroDivisionError):
                return False
            if got != seen.value or isinstance(got, bool) is not isinstance(seen.value, bool):
                return False
        return True


class _Named(dict):
    def __init__(self, name: Callable[[str], str]) -> None:
        super().__init__()
        self._name = name

    def __missing__(self, key: str) -> str:
        return self._name(key)


SIZES = ("M", "N", "K")


def _size(name: str) -> Formula:
    return Formula(name, lambda s, c: s[name])


def _constant(name: str) -> Formula:
    return Formula(f"{{{name}}}", lambda s, c: c[name])


def _literal(value: int) -> Formula:
    return Formula(str(value), lambda s, c: value)


def _cdiv(x: Formula, y: Formula) -> Formula:
    """Rounded up; the text needs no parentheses around a product of constants."""
    return Formula(f"triton.cdiv({x.text}, {y.text})", lambda s, c: -(-x.value(s, c) // y.value(s, c)))


def _over(x: Formula, divisor: int) -> Formula:
    return Formula(f"{x.text} // {divisor}", lambda s, c: x.value(s, c) // divisor)


def _rounded(x: Formula, step: int) -> Formula:
    return Formula(f"triton.cdiv({x.text}, {step}) * {step}", lambda s, c: -(-x.value(s, c) // step) * step)


def _at_least(x: Formula, least: int) -> Formula:
    return Formula(f"max({x.text}, {least})", lambda s, c: max(x.value(s, c), least))


def _product(factors: Sequence[Formula]) -> Formula:
    text = " * ".join(f"({f.text})" if " // " in f.text else f.text for f in factors)

    def value(s: Values, c: Values) -> object:
        result = 1
        for factor in factors:
            result *= factor.value(s, c)
        return result

    return Formula(text, value)


def _tail(x: Formula, y: Formula) -> Formula:
    return Formula(f"{x.text} % {y.text} != 0", lambda s, c: x.value(s, c) % y.value(s, c) != 0)


def _integer_names(observations: Sequence[Observation]) -> list[str]:
    """Constants that are plain integers in every observation."""
    first = observations[0].constants
    names = [n for n, v in first.items() if isinstance(v, int) and not isinstance(v, bool)]
    return [n for n in names if all(type(o.constants.get(n)) is int for o in observations) and n not in SIZES]


def _candidates(names: Sequence[str], boolean: bool, thorough: bool) -> Iterator[Formula]:
    """Expressions, the simple before the involved."""
    sizes = [_size(name) for name in SIZES]
    constants = [_constant(name) for name in names]
    if boolean:
        yield from (_tail(x, y) for x in sizes for y in constants)
        yield from (_tail(x, _literal(step)) for x in sizes for step in (32, 64, 128, 256))
        yield from (_tail(x, _at_least(y, 256)) for x in sizes for y in constants)
        yield from (_tail(x, _product([y, z])) for x in sizes for y, z in itertools.combinations(constants, 2))
        return
    yield from sizes
    yield from constants
    simple = [
        *sizes,
        *[_over(x, d) for x in sizes for d in (2, 16, 32)],
        *[_rounded(x, s) for x in sizes for s in (32, 256)],
    ]
    simple += [_rounded(_over(sizes[2], 32), 8)]
    yield from simple
    if not thorough:
        return
    products = [_product(pair) for pair in itertools.combinations(sizes, 2)]
    yield from products
    divided = [_cdiv(x, y) for x in [*simple, *products] for y in constants]
    yield from divided
    yield from (_product(group) for size in (2, 3) for group in itertools.combinations(constants, size))
    pairs = [_product(pair) for pair in itertools.combinations(constants, 2)]
    yield from (_cdiv(p, pair) for p in products for pair in pairs)
    tiles = {size.text: [_cdiv(size, y) for y in constants] for size in sizes}
    wide = {size.text: [*tiles[size.text], *(_cdiv(size, pair) for pair in pairs)] for size in sizes}
    yield from (_product(pair) for name in SIZES for pair in itertools.product(wide[name], constants))
    areas = [_product(pair) for first, second in itertools.combinations(SIZES, 2)
             for pair in itertools.product(tiles[first], wide[second])]  # fmt: skip
    yield from areas
    yield from (_product([c, *pair]) for c in constants for pair in itertools.combinations(sizes, 2))
    yield from (_product([area, c]) for area in areas for c in constants)
    yield from (_product([area, pair]) for area in areas for pair in pairs)


def find_formula(
    observations: Sequence[Observation], names: Sequence[str] | None = None, thorough: bool = True
) -> Formula | None:
    """The first expression that gives every value observed; None where there is none in this small language.

    Args:
        observations: numbers (or truth values) seen in plans of many shapes.
        names: constants that may appear; None allows every integer constant of the launch.
        thorough: also try products of several tile counts; without it only what a size or a condition can be.
    """
    if not observations:
        return None
    kinds = {type(o.value) for o in observations}
    if kinds not in ({bool}, {int}):
        return None
    if kinds == {int} and always_equal(observations):
        return _literal(observations[0].value)
    allowed = _integer_names(observations)
    if names is not None:
        allowed = [n for n in allowed if n in names]
    for formula in _candidates(allowed, kinds == {bool}, thorough):
        if formula.fits(observations):
            return formula
    return None


def always_equal(observations: Sequence[Observation]) -> bool:
    """Is the value the same in all of them?"""
    return len({(type(o.value), o.value) for o in observations}) == 1
