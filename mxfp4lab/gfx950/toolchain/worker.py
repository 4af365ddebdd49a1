"""A process that compiles: requests in on standard input, answers out, one line of JSON each.

Started as a plain subprocess, so that a caller's `__main__`, threads and open handles play no part, and so that LLVM
may abort or hang without taking anything else along.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import importlib.util
import inspect
import json
import os
import sys
from pathlib import Path
from typing import Any

from mxfp4lab.gfx950.toolchain import cache, diagnostics
from mxfp4lab.gfx950.toolchain import compile as compiling
from mxfp4lab.gfx950.toolchain.errors import CompileError
from mxfp4lab.gfx950.toolchain.specialize import Specialization


class NotPortableError(Exception):
    """A job that another process cannot repeat: its function or a constant has no name to find it by."""


def encode_job(job: compiling.KernelJob, use_cache: bool) -> dict[str, Any]:
    """A job as JSON values.

    Raises:
        NotPortableError: the kernel lives in no file (a notebook cell), or a constant has no JSON form.
    """
    chosen = job.specialization
    return {
        "function": _name_function(job.jit_fn),
        "signature": chosen.signature,
        "constants": {name: _encode_constant(value) for name, value in chosen.constants.items()},
        "attributes": chosen.attributes,
        "options": {name: _encode_constant(value) for name, value in job.options},
        "arch": job.arch,
        "knobs": list(job.knobs),
        "key": job.key,
        "use_cache": use_cache,
    }


def decode_job(request: dict[str, Any]) -> compiling.KernelJob:
    """The job behind `encode_job`, in another process.

    Raises:
        NotPortableError: what this process finds under the function's name is not the same kernel.
    """
    chosen = Specialization(
        request["signature"],
        {name: _decode_constant(value) for name, value in request["constants"].items()},
        request["attributes"],
    )
    options = tuple((name, _decode_constant(value)) for name, value in request["options"].items())
    knobs = tuple((name, value) for name, value in request["knobs"])
    for find in (_find_by_module, _find_by_file):
        job = compiling.KernelJob(find(request["function"]), chosen, options, request["arch"], knobs)
        if job.jit_fn is not None and job.key == request["key"]:
            return job
    raise NotPortableError(f"{request['function']['qualname']} differs in another process")


def serve(diagnostics_path: str) -> None:
    """Answer requests until standard input ends. Nothing but answers reaches the original standard output."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    diagnostics.kept_in = diagnostics_path
    for line in sys.stdin:
        request = json.loads(line)
        try:
            result = compiling.compile_job(decode_job(request), use_cache=request["use_cache"])
        except CompileError as error:
            result = error
        except NotPortableError as error:
            print(json.dumps({"not_portable": str(error)}), file=answers, flush=True)
            continue
        entry = base64.b64encode(cache.encode_entry(result, request["key"])).decode()
        fresh = not getattr(result, "from_cache", True)
        print(json.dumps({"entry": entry, "fresh": fresh}), file=answers, flush=True)


def decode_answer(answer: dict[str, Any], key: str) -> Any:
    """The `Compiled` or `CompileError` in a worker's answer."""
    result = cache.decode_entry(base64.b64decode(answer["entry"]), key)
    if result is None:
        raise CompileError("a compile worker sent an answer that does not check out", "crash")
    if not isinstance(result, CompileError):
        result.from_cache = not answer["fresh"]
    return result


def _name_function(jit_fn: Any) -> dict[str, str]:
    function = jit_fn.fn
    try:
        path = inspect.getsourcefile(function) or ""
    except TypeError:
        path = ""
    if "<locals>" in function.__qualname__ or not os.path.isfile(path):
        raise NotPortableError(f"{function.__qualname__} is in no file that another process can load")
    return {"module": function.__module__, "qualname": function.__qualname__, "file": os.path.abspath(path)}


def _find_by_module(function: dict[str, str]) -> Any:
    if function["module"] in ("__main__", "__mp_main__"):
        return None
    try:
        module = importlib.import_module(function["module"])
    except Exception:
        return None
    return _attribute(module, function["qualname"])


def _find_by_file(function: dict[str, str]) -> Any:
    path = Path(function["file"])
    name = f"mxfp4lab_kernels_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            raise NotPortableError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from None
    return _attribute(sys.modules[name], function["qualname"])


def _attribute(module: Any, qualname: str) -> Any:
    found = module
    for part in qualname.split("."):
        found = getattr(found, part, None)
    try:
        return None if found is None else compiling.unwrap(found)
    except CompileError:
        return None


def _encode_constant(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, tuple):
        return {"tuple": [_encode_constant(item) for item in value]}
    if hasattr(value, "cache_key") and hasattr(value, "fn"):
        return {"jit": _name_function(value)}
    if type(value).__name__ == "constexpr":
        return {"constexpr": _encode_constant(value.value)}
    if type(value).__module__ == "triton.language.core" and type(value).__name__ == "dtype":
        return {"dtype": value.name}
    raise NotPortableError(f"a constant of type {type(value).__name__} has no JSON form")


def _decode_constant(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "float":
        return float.fromhex(inner)
    if kind == "tuple":
        return tuple(_decode_constant(item) for item in inner)
    if kind == "jit":
        return _find_by_module(inner) or _find_by_file(inner)
    import triton.language as tl

    if kind == "constexpr":
        return tl.constexpr(_decode_constant(inner))
    return tl.dtype(inner)
