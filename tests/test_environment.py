"""What different files say about the environment is the same thing."""

import re
import subprocess
import tomllib

from mxfp4lab import bootstrap
from mxfp4lab.paths import REPO_ROOT

PIN = re.compile(r"^\s*-?\s*([A-Za-z0-9_.\-]+)==([^\s#;]+)")


def pins(name: str) -> dict[str, str]:
    found = {}
    for line in (REPO_ROOT / name).read_text().splitlines():
        match = PIN.match(line)
        if match and not line.lstrip().startswith("#"):
            found[match[1].lower().replace("_", "-")] = match[2]
    return found


def project() -> dict:
    return tomllib.loads((REPO_ROOT / "pyproject.toml").read_text())["project"]


def required(extra: str = "") -> set[str]:
    names = project()["optional-dependencies"][extra] if extra else project()["dependencies"]
    return {re.split(r"[<>=!~;\[ ]", name)[0].lower().replace("_", "-") for name in names}


def test_conda_and_pip_install_the_same_versions():
    conda, lock = pins("environment.yml"), pins("requirements.lock")
    torch = conda.pop("torch")
    assert f"torch=={torch}" == bootstrap.TORCH
    assert len(conda) >= 15
    assert conda == {name: lock.get(name) for name in conda}


def test_conda_installs_all_that_the_package_and_its_tests_need():
    text = (REPO_ROOT / "environment.yml").read_text().lower().replace("_", "-")
    for name in required() | required("test") | required("codeobject"):
        assert re.search(rf"^\s*- {re.escape(name)}[=<>]", text, re.M), name


def test_the_lock_pins_what_every_extra_asks_for():
    lock = pins("requirements.lock")
    for extra in project()["optional-dependencies"]:
        if extra == "ray":  # only a cluster wants it
            continue
        assert required(extra) <= set(lock), (extra, required(extra) - set(lock))


def test_make_help_lists_every_target():
    done = subprocess.run(["make", "help"], cwd=REPO_ROOT, capture_output=True, text=True, check=True)
    listed = set(re.findall(r"^  make (\S+)", done.stdout, re.M))
    phony = re.search(r"^\.PHONY: (.*)$", (REPO_ROOT / "Makefile").read_text(), re.M)
    assert phony is not None and listed == set(phony[1].split())
