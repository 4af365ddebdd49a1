"""Find an installed aiter (or a source tree of it) and say where its parts lie, without importing any of it.

ROCm's aiter is `amd-aiter` on PyPI; the package that PyPI calls `aiter` is an unrelated asyncio library. Both install
a folder `aiter`, so what is found is recognised by what it contains. aiter's files have moved between releases; each
part is looked for under every name it has had, and what is missing is said per part.

Imports nothing beyond the standard library: a plan builder or the command line may use it freely.
"""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import importlib.util
from dataclasses import dataclass
from pathlib import Path

DISTRIBUTION = "amd-aiter"
IMPOSTOR_MARKERS = ("join_aiters.py", "map_aiter.py", "azip.py", "gated_aiter.py")
ROCM_MARKERS = ("ops/triton", "jit/core.py", "utility/fp4_utils.py")

_KERNEL_FILES = (
    "ops/triton/_triton_kernels/quant/quant.py",
    "ops/triton/_triton_kernels/quant.py",
    "ops/triton/quant/quant.py",
    "ops/triton/quant.py",
)
_WRAPPER_FILES = ("ops/triton/quant/quant.py", "ops/triton/quant/__init__.py", "ops/triton/quant.py")
_GEMM_FILES = ("ops/gemm_op_a4w4.py",)

# part -> (files that have held it, newest first; names it has had)
PARTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "quant_op": (_KERNEL_FILES, ("_mxfp4_quant_op",)),
    "quant_kernel": (_KERNEL_FILES, ("_dynamic_mxfp4_quant_kernel",)),
    "dynamic_mxfp4_quant": (_WRAPPER_FILES, ("dynamic_mxfp4_quant",)),
    "e8m0_shuffle": (("ops/shuffle.py", "utility/fp4_utils.py"), ("e8m0_shuffle", "shuffle_scale")),
    "shuffle_weight": (("ops/shuffle.py",), ("shuffle_weight",)),
    "gemm_a4w4": (_GEMM_FILES, ("gemm_a4w4",)),
    "gemm_a4w4_asm": (_GEMM_FILES, ("gemm_a4w4_asm",)),
    "get_GEMM_config": (_GEMM_FILES, ("get_GEMM_config", "get_CKGEMM_config")),
}


class AiterError(ValueError):
    """No usable aiter, or a part of it that is missing or cannot be trusted: one line that says which and why."""


@dataclass(frozen=True)
class Part:
    """One entry point of aiter.

    Attributes:
        role: the key in `PARTS`.
        name: the name it has in this release.
        module: its dotted module, for example `aiter.ops.triton._triton_kernels.quant.quant`.
        path: the file.
        line: where it is defined.
        problem: "" if found, else one line with the names and files that were tried.
    """

    role: str
    name: str = ""
    module: str = ""
    path: Path | None = None
    line: int = 0
    problem: str = ""

    @property
    def found(self) -> bool:
        return not self.problem


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

    def part(self, role: str) -> Part:
        """Where one entry point lies; a missing one is a `Part` with a problem, not an exception.

        Raises:
            ValueError: if `role` is not a key of `PARTS`.
        """
        if role not in PARTS:
            raise ValueError(f"role={role!r} must be one of {', '.join(PARTS)}")
        files, names = PARTS[role]
        for file in files:
            path = self.package / file
            if not path.is_file():
                continue
            lines = _definitions(path)
            for name in names:
                if name in lines:
                    return Part(role, name, _module_name(file), path, lines[name])
        return Part(role, problem=f"{' / '.join(names)} is in none of {', '.join(files)} of {self}")

    def parts(self) -> tuple[Part, ...]:
        """Every entry point, found or not, in the order of `PARTS`."""
        return tuple(self.part(role) for role in PARTS)

    def code_object_folder(self, arch: str = "gfx950") -> Path | None:
        """The folder of prebuilt FP4 GEMM code objects (`f4gemm`), or None if this aiter came without them."""
        for base in (self.root / "aiter_meta" / "hsa", self.root / "hsa", self.package / "hsa"):
            folder = base / arch / "f4gemm"
            if folder.is_dir():
                return folder
        return None

    def tuned_table(self) -> Path | None:
        """aiter's own table of tuned a4w4 GEMMs, or None."""
        path = self.package / "configs" / "a4w4_blockscale_tuned_gemm.csv"
        return path if path.is_file() else None


def find_aiter(source: str | Path | None = None) -> AiterInstall:
    """Find ROCm's aiter.

    Args:
        source: a source tree (the folder that holds `aiter`, or `aiter` itself); None or "installed" for whatever
            `import aiter` would give.

    Returns:
        The install. Nothing of it has been imported.

    Raises:
        AiterError: if there is none, or if what is there is another project's package; the message says what to do.
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
        package = given / "aiter" if (given / "aiter").is_dir() else given
        origin = "tree"
        if not package.is_dir():
            raise AiterError(f"aiter_source={str(source)!r} is not a folder")
        if not _is_rocm(package) and not (package / "__init__.py").exists():
            raise AiterError(f"aiter_source={str(source)!r} holds no package `aiter`")
    if not _is_rocm(package):
        raise AiterError(_impostor_message(package))
    return AiterInstall(package.resolve(), _version(package, origin), origin)


def _is_rocm(package: Path) -> bool:
    return any((package / marker).exists() for marker in ROCM_MARKERS)


def _impostor_message(package: Path) -> str:
    signs = [name for name in IMPOSTOR_MARKERS if (package / name).exists()]
    what = f"an asyncio library ({', '.join(signs)})" if signs else "none of " + ", ".join(ROCM_MARKERS)
    return (
        f"the package `aiter` at {package} is not ROCm's: it contains {what}. "
        f"PyPI's `aiter` is an unrelated project; `pip uninstall aiter` and `pip install --no-deps {DISTRIBUTION}`"
    )


def _version(package: Path, origin: str) -> str:
    if origin == "installed":
        for name in (DISTRIBUTION, "aiter"):
            try:
                return importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
    path = package / "_version.py"
    if path.is_file():
        for node in ast.parse(path.read_text(encoding="utf-8", errors="replace")).body:
            if not isinstance(node, ast.Assign):
                continue
            if any(isinstance(t, ast.Name) and t.id in ("__version__", "version") for t in node.targets):
                try:
                    return str(ast.literal_eval(node.value))
                except ValueError:
                    continue
    return "unknown"


def _module_name(file: str) -> str:
    parts = file.removesuffix(".py").split("/")
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(["aiter", *parts])


@functools.lru_cache(maxsize=64)
def _definitions(path: Path) -> dict[str, int]:
    """Top-level names that a file defines or, in an `__init__.py`, imports: name -> line."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
    except SyntaxError:
        return {}
    found: dict[str, int] = {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = node.lineno
        elif isinstance(node, ast.ImportFrom) and path.name == "__init__.py":
            found.update({alias.asname or alias.name: node.lineno for alias in node.names})
    return found
