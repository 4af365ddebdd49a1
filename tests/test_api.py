"""The names that a reader types first: found in any order of imports, and nothing heavy is loaded before."""

import random
import subprocess
import sys

import pytest

import mxfp4lab


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("seed", range(3))
def test_public_names_are_found_in_any_order(seed):
    names = list(mxfp4lab._WHERE)
    random.Random(seed).shuffle(names)
    lines = "".join(f"from mxfp4lab import {name}; assert callable({name})\n" for name in names)
    assert run(lines + "print('all')").strip() == "all"


def test_importing_the_package_loads_nothing_heavy():
    heavy = "('torch', 'triton', 'numpy', 'pandas', 'matplotlib')"
    assert run(f"import mxfp4lab, sys; print([n for n in {heavy} if n in sys.modules])").strip() == "[]"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'quantise_mxfp4'"):
        _ = mxfp4lab.quantise_mxfp4
