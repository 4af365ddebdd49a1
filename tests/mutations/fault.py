"""A mutation, and a copy of the kernel package with one line changed.

A mutant is a package of its own on disk, because Triton reads a kernel's source from its file.
"""

from __future__ import annotations

import functools
import importlib
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import mxfp4lab.kernels
from mxfp4lab.plan import Plan

KERNELS = Path(mxfp4lab.kernels.__file__).parent
MODULES = tuple(sorted(path.stem for path in KERNELS.glob("*.py") if path.stem != "__init__"))


@dataclass(frozen=True)
class Mutation:
    """One fault and what must happen to it.

    Attributes:
        name: as the table shows it.
        about: the mistake in words.
        case: name of the case (`cases.CASES`) that shows it.
        caught_by: the first detector that objects (`detect.DETECTORS`), or "" for a fault that none sees.
        module, old, new: in kernel module `module` the text `old`, which must occur, becomes `new`.
        count: how many occurrences change; 0 for all.
        plan: changes the plan instead.
        machine_code: changes the compiled plan instead.
        judge, control: gives the verdict itself, with the fault and without, where there is no case.
        proof: why no detector can object: the mutant is equivalent, or what is out of the emulator's reach.
    """

    name: str
    about: str
    case: str
    caught_by: str
    module: str = ""
    old: str = ""
    new: str = ""
    count: int = 0
    plan: Callable[[Plan], Plan] | None = None
    machine_code: Callable[[Any], Any] | None = None
    judge: Callable[[], Any] | None = None
    control: Callable[[], Any] | None = None
    proof: str = ""

    def apply(self, plan: Plan) -> Plan:
        """The case's plan with the fault in it."""
        if self.plan is not None:
            return self.plan(plan)
        if not self.module:
            return plan
        source = (KERNELS / f"{self.module}.py").read_text()
        found = source.count(self.old)
        if not found or (self.count and found < self.count):
            raise ValueError(f"{self.name}: {self.module}.py holds the text to change {found} times: {self.old!r}")
        package = mutant_package(self.name, self.module, source.replace(self.old, self.new, self.count or -1))
        return replace(plan, launches=tuple(_with_functions_of(launch, package) for launch in plan.launches))


@functools.cache
def _folder() -> tempfile.TemporaryDirectory:
    """Where the packages of this process lie; removed when it ends."""
    return tempfile.TemporaryDirectory(prefix="mxfp4lab-mutants-")


def mutant_package(name: str, module: str, source: str) -> str:
    """Name of an importable copy of the kernels, `module` with other source."""
    package = f"mutant_{name}"
    folder = Path(tempfile.mkdtemp(dir=_folder().name))
    target = folder / package
    target.mkdir()
    (target / "__init__.py").write_text("")
    for each in MODULES:
        text = source if each == module else (KERNELS / f"{each}.py").read_text()
        (target / f"{each}.py").write_text(text)
    for known in [known for known in sys.modules if known == package or known.startswith(package + ".")]:
        del sys.modules[known]
    sys.path.insert(0, str(folder))
    try:
        importlib.invalidate_caches()
        for each in MODULES:
            importlib.import_module(f"{package}.{each}")
    finally:
        sys.path.remove(str(folder))
    return package


def _with_functions_of(launch: Any, package: str) -> Any:
    def copied(function: Any) -> Any:
        module: ModuleType = sys.modules[f"{package}.{function.fn.__module__.rsplit('.', 1)[1]}"]
        return getattr(module, function.fn.__name__)

    constants = tuple((name, copied(value) if hasattr(value, "fn") else value) for name, value in launch.constants)
    return replace(launch, fn=copied(launch.fn), constants=constants)
