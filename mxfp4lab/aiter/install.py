"""Find an installed aiter (or a source tree of it), and load single kernel files of it without importing the rest.

ROCm's aiter is `amd-aiter` on PyPI; the package that PyPI calls `aiter` is an unrelated asyncio library. Both install a
folder `aiter`, so what is found is recognised by what it contains.

`import aiter` builds C++ extensions and asks for a GPU. Its Triton kernel files need neither: a file is executed under
its own dotted name, while the packages above it are empty stand-ins that only know where their files lie. A stand-in
runs its real `__init__.py` only when a kernel file asks it for a name that no file of that name can give, and the
top-level one never does.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import re
import sys
import threading
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

DISTRIBUTION = "amd-aiter"
ROCM_MARKERS = ("ops/triton", "jit/core.py", "utility/fp4_utils.py")
ASYNCIO_MARKERS = ("join_aiters.py", "map_aiter.py", "azip.py", "gated_aiter.py")

_LOCK = threading.RLock()  # sys.modules is swapped while a file loads
_LOADED: dict[tuple[Path, str], types.ModuleType] = {}


class AiterError(ValueError):
    """No usable aiter, or a part of it that is missing or cannot be trusted: one line that says which and why."""


@dataclass(frozen=True)
class AiterInstall:
    """An aiter on this machine.

    Attributes:
        package: the folder `aiter` itself.
        version: of the distribution, or what `_version.py` says, or "unknown".
        origin: "installed" or "tree".
    """

    package: Path
    version: str
    origin: str

    def __str__(self) -> str:
        return f"aiter {self.version} ({self.origin}, {self.package})"

    @property
    def root(self) -> Path:
        """The folder to put on `sys.path` so that `import aiter` means this one."""
        return self.package.parent

    def code_objects(self, arch: str = "gfx950") -> Path:
        """The folder of prebuilt FP4 GEMM code objects (`f4gemm`).

        Raises:
            AiterError: this aiter came without them.
        """
        for base in (self.root / "aiter_meta" / "hsa", self.root / "hsa", self.package / "hsa"):
            if (base / arch / "f4gemm").is_dir():
                return base / arch / "f4gemm"
        raise AiterError(f"{self} came without prebuilt f4gemm code objects for {arch}")


def find_aiter(source: str | Path | None = None) -> AiterInstall:
    """Find ROCm's aiter; nothing of it is imported.

    Args:
        source: a source tree (the folder that holds `aiter`, or `aiter` itself); None or "installed" for whatever
            `import aiter` would give.

    Raises:
        AiterError: there is none, or what is there is another project's package; the message says what to do.
    """
    if source is None or str(source) in ("", "installed"):
        spec = importlib.util.find_spec("aiter")
        if spec is None or not spec.submodule_search_locations:
            raise AiterError(
                "no aiter is installed; `make setup AITER=1` in the repository gives AMD's kernels "
                f"(it runs `pip install --no-deps {DISTRIBUTION}`)"
            )
        package, origin = Path(next(iter(spec.submodule_search_locations))), "installed"
    else:
        given = Path(source).expanduser()
        package, origin = (given / "aiter" if (given / "aiter").is_dir() else given), "tree"
        if not package.is_dir():
            raise AiterError(f"aiter_source={str(source)!r} is not a folder")
    if not any((package / marker).exists() for marker in ROCM_MARKERS):
        if origin == "tree" and not (package / "__init__.py").exists():
            raise AiterError(f"aiter_source={str(source)!r} holds no package `aiter`")
        signs = [name for name in ASYNCIO_MARKERS if (package / name).exists()]
        what = f"an asyncio library ({', '.join(signs)})" if signs else "none of " + ", ".join(ROCM_MARKERS)
        raise AiterError(
            f"the package `aiter` at {package} is not ROCm's: it contains {what}. PyPI's `aiter` is an unrelated "
            f"project; `pip uninstall aiter` and `pip install --no-deps {DISTRIBUTION}`"
        )
    return AiterInstall(package.resolve(), _version(package, origin), origin)


def _version(package: Path, origin: str) -> str:
    if origin == "installed":
        for name in (DISTRIBUTION, "aiter"):
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                return importlib.metadata.version(name)
    path = package / "_version.py"
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    found = re.search(r"^(?:__version__ = )?version = [\"']([^\"']+)|^__version__ = [\"']([^\"']+)", text, re.MULTILINE)
    return next(filter(None, found.groups())) if found else "unknown"


class _StandIn(types.ModuleType):
    """A package that has a path and nothing else, until a name is asked of it."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name)
        self.__path__ = [str(folder)]
        self.__package__ = name
        self.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        self.__spec__.submodule_search_locations = self.__path__
        self._initialised = name == "aiter"

    def __getattr__(self, name: str) -> object:
        folder = Path(self.__path__[0])
        is_submodule = (folder / f"{name}.py").exists() or (folder / name).is_dir()
        initialiser = folder / "__init__.py"
        if name.startswith("__") or is_submodule or self._initialised or not initialiser.exists():
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self._initialised = True
        exec(compile(initialiser.read_text(encoding="utf-8"), str(initialiser), "exec"), self.__dict__)
        return getattr(self, name)


class _Finder:
    """Gives a stand-in for every package below `aiter`; plain files are left to Python's own finder."""

    def __init__(self, install: AiterInstall) -> None:
        self.install = install

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        folder = self.install.root.joinpath(*name.split("."))
        if name.split(".")[0] != "aiter" or not folder.is_dir():
            return None
        spec = importlib.machinery.ModuleSpec(name, cast(Any, self), is_package=True)
        spec.submodule_search_locations = [str(folder)]
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _StandIn(spec.name, Path((spec.submodule_search_locations or [""])[0]))

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing: that is the point."""


@contextlib.contextmanager
def _aiter_is(install: AiterInstall) -> Iterator[None]:
    """Within this block `aiter` names the given install, freshly loaded; afterwards everything is as before."""
    with _LOCK:
        saved = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "aiter"}
        finder = _Finder(install)
        sys.meta_path.insert(0, finder)
        try:
            yield
        finally:
            sys.meta_path.remove(finder)
            for name in [name for name in sys.modules if name.split(".")[0] == "aiter"]:
                del sys.modules[name]
            sys.modules.update(saved)


def load_file(install: AiterInstall, file: str) -> types.ModuleType:
    """Execute one file of aiter, once per install.

    Args:
        install: from `find_aiter`.
        file: path relative to the package folder, such as `ops/triton/_triton_kernels/gemm_afp4wfp4.py`.

    Raises:
        AiterError: the file is missing or does not load here, with the reason in one line.
    """
    if not (install.package / file).is_file():
        raise AiterError(f"{file} is not part of {install}")
    key = (install.package, file)
    if key not in _LOADED:
        with _aiter_is(install):
            try:
                _LOADED[key] = importlib.import_module(".".join(["aiter", *Path(file).with_suffix("").parts]))
            except Exception as error:  # whatever a foreign file raises at import
                raise AiterError(f"{file} of {install} does not load here: {type(error).__name__}: {error}") from error
    return _LOADED[key]
