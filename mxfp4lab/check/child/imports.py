"""What an import does in a submission's process: the lab is refused, and Triton gets the stand-in driver."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys

from .gpu_torch import Backend


class NoLab(importlib.abc.MetaPathFinder):
    """Refuses to import the lab, however it is installed."""

    def find_spec(self, name: str, path: object = None, target: object = None):
        if name.split(".")[0] == "mxfp4lab":
            raise ModuleNotFoundError(
                "No module named 'mxfp4lab': a submission has torch, triton and the task's modules"
            )
        return None


class AfterTriton(importlib.abc.MetaPathFinder):
    """Puts the stand-in driver into Triton as soon as somebody imports it, and not before: that takes half a second."""

    def __init__(self, stand_in: Backend) -> None:
        self._stand_in = stand_in

    def find_spec(self, name: str, path: object = None, target: object = None):
        if name != "triton":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("triton")
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_install(module: object) -> None:
            execute(module)
            from . import gpu_triton

            gpu_triton.install(self._stand_in)

        spec.loader.exec_module = execute_and_install  # type: ignore[method-assign]
        return spec
