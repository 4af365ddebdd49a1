"""Load single kernel files of aiter without running the initialisers of the packages around them.

`import aiter` builds C++ extensions and asks for a GPU. Its Triton kernel files need neither: a file is executed under
its own dotted name, while the packages above it are empty stand-ins that only know where their files lie. A stand-in
runs its real `__init__.py` only when a kernel file asks it for a name that no file of that name can give, and the
top-level one never does.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.util
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path

from mxfp4lab.aiter.install import AiterError, AiterInstall, Part

_LOCK = threading.RLock()  # sys.modules is swapped while a file loads
_LOADED: dict[tuple[Path, str], types.ModuleType] = {}


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
        code = compile(initialiser.read_text(encoding="utf-8"), str(initialiser), "exec")
        exec(code, self.__dict__)
        return getattr(self, name)


class _Finder:
    """Gives a stand-in for every package below `aiter`; plain files are left to Python's own finder."""

    def __init__(self, install: AiterInstall) -> None:
        self.install = install

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name != "aiter" and not name.startswith("aiter."):
            return None
        folder = self.install.root.joinpath(*name.split("."))
        if not folder.is_dir():
            return None
        return importlib.machinery.ModuleSpec(name, _StandInLoader(folder), is_package=True)


class _StandInLoader:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        spec.submodule_search_locations = [str(self.folder)]
        return _StandIn(spec.name, self.folder)

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
    """Execute one file of aiter, for example `ops/triton/_triton_kernels/gemm_afp4wfp4.py`.

    Args:
        install: from `find_aiter`.
        file: path relative to the package folder.

    Returns:
        The module; loaded once per install.

    Raises:
        AiterError: if the file is missing or does not load here, with the reason in one line.
    """
    path = install.package / file
    if not path.is_file():
        raise AiterError(f"{file} is not part of {install}")
    key = (install.package, file)
    if key not in _LOADED:
        name = ".".join(["aiter", *Path(file).with_suffix("").parts])
        with _aiter_is(install):
            try:
                _LOADED[key] = importlib.import_module(name)
            except Exception as error:  # whatever a foreign file raises at import
                raise AiterError(f"{file} of {install} does not load here: {type(error).__name__}: {error}") from error
    return _LOADED[key]


def load_part(install: AiterInstall, role: str) -> object:
    """The object behind one part (a kernel, an op, a helper), loaded by file.

    Raises:
        AiterError: if it is missing or its file does not load.
    """
    part = install.part(role)
    if not part.found:
        raise AiterError(part.problem)
    module = load_file(install, part.path.relative_to(install.package).as_posix())
    return getattr(module, part.name)


def import_part(install: AiterInstall, role: str) -> object:
    """The object behind one part by a real import of aiter, initialisers and all: what a GPU box does.

    Args:
        install: must be what `import aiter` gives; its root is put on `sys.path` if it is a tree.
        role: see `install.PARTS`.

    Raises:
        AiterError: if the part is missing, another aiter is imported already, or the import fails.
    """
    part = install.part(role)
    if not part.found:
        raise AiterError(part.problem)
    if str(install.root) not in sys.path:
        sys.path.insert(0, str(install.root))
    try:
        module = importlib.import_module(part.module)
        value = getattr(module, part.name)
    except Exception as error:
        raise AiterError(f"{part.module}.{part.name} does not import: {type(error).__name__}: {error}") from error
    origin = Path(getattr(sys.modules.get("aiter"), "__file__", None) or install.package / "__init__.py").parent
    if origin.resolve() != install.package:
        raise AiterError(f"`aiter` is imported from {origin} already, not from {install.package}")
    return value


def import_parts(install: AiterInstall, roles: tuple[str, ...]) -> tuple[dict[str, object], dict[str, Part]]:
    """Import several parts; what fails is reported, not raised.

    Returns:
        (role -> object, role -> `Part` with its problem): every role is in exactly one of them.
    """
    values: dict[str, object] = {}
    problems: dict[str, Part] = {}
    for role in roles:
        try:
            values[role] = import_part(install, role)
        except AiterError as error:
            problems[role] = Part(role, problem=str(error))
    return values, problems
