"""Executes the launches of a submission's process on the gfx950 emulator, on the very bytes of its tensors.

Machine code and arguments arrive as JSON, tensors lie in the shared window; nothing that the process sends is ever
unpickled or executed here except as gfx950 instructions. A launch that was executed before on the same bytes is
replayed from its result: the emulator is deterministic.
"""

from __future__ import annotations

import hashlib
import mmap
import time
from dataclasses import dataclass, field, replace

import numpy as np

from mxfp4lab.check.text import plain
from mxfp4lab.gfx950 import Compiled

MAX_KERNELS = 1000
MAX_GRID = 1 << 24
EMULATION_LIMIT_S = 1800.0  # of all launches of a check; the task's six shapes take a few minutes
REPLAY_BYTES = 2 << 30  # results kept for replay


@dataclass
class KernelUse:
    """One kernel of a submission: what it is and what its launches showed.

    Attributes:
        compiled: machine code with resources, mix and hazards.
        options: num_warps, num_stages and the AMD options.
        constants: constexpr arguments as text.
        grids: launches per grid.
        launches: how often it was launched; replayed: how many of those were replayed from an equal launch.
        lane_instructions: executed, replays included.
        findings: what the emulator reported (out-of-bounds accesses and the like), without repetitions.
        layout: (offset, size) of each argument, for prebuilt code objects.
    """

    compiled: Compiled
    options: dict[str, int]
    constants: dict[str, str]
    grids: dict[tuple[int, int, int], int] = field(default_factory=dict)
    launches: int = 0
    replayed: int = 0
    lane_instructions: int = 0
    findings: list[str] = field(default_factory=list)
    layout: tuple[tuple[int, int], ...] | None = None

    def to_dict(self) -> dict[str, object]:
        """Plain JSON values for `--json`."""
        from dataclasses import asdict

        resources = self.compiled.resources
        return {
            "name": self.compiled.name,
            "options": self.options,
            "constants": self.constants,
            "resources": asdict(resources) if resources else None,
            "mix": self.compiled.mix,
            "mfma": self.compiled.mfma,
            "hazards": [str(h) for h in self.compiled.hazards],
            "launches": self.launches,
            "replayed": self.replayed,
            "grids": [{"grid": list(grid), "launches": n} for grid, n in self.grids.items()],
            "lane_instructions": self.lane_instructions,
            "findings": self.findings,
        }


class LaunchService:
    """Answers `kernel`, `prebuilt`, `launch` and `note` requests of one submission's process.

    Args:
        races: look for races too.
        seconds: of emulation, all launches together; None: `EMULATION_LIMIT_S`.

    Attributes:
        window: set before the first request: the shared memory in which tensors lie.
    """

    def __init__(self, races: bool = False, seconds: float | None = None) -> None:
        self._races, self._left_s = races, EMULATION_LIMIT_S if seconds is None else seconds
        self.window: mmap.mmap | None = None
        self.kernels: list[KernelUse] = []
        self.notes: list[str] = []
        self._known: dict[str, int] = {}
        self._results: dict[bytes, tuple[dict[int, bytes], int, tuple[str, ...]]] = {}  # as of `_execute`
        self._held = 0  # bytes

    @property
    def launches(self) -> int:
        """Of all kernels so far."""
        return sum(use.launches for use in self.kernels)

    @property
    def lane_instructions(self) -> int:
        """Of all launches so far, replays included."""
        return sum(use.lane_instructions for use in self.kernels)

    def __call__(self, message: dict) -> dict:
        """One request; a malformed one, or a launch that fails, is answered with `error`."""
        try:
            operation = message.get("op")
            if operation == "kernel":
                return self._kernel(message)
            if operation == "prebuilt":
                return self._prebuilt(message)
            if operation == "launch":
                return self._launch(message)
            if operation == "note":
                note = plain(message["text"])
                if note not in self.notes and len(self.notes) < 100:
                    self.notes.append(note)
                return {}
            return {"error": f"unknown request {operation!r}"}
        except (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, MemoryError) as error:
            return {"error": f"malformed request ({type(error).__name__}: {error})"}
        except ValueError as error:
            return {"error": " ".join(str(error).split())}

    def _kernel(self, message: dict) -> dict:
        text = str(message["asm"])
        key = hashlib.blake2b(text.encode() + repr(message["signature"]).encode()).hexdigest()
        if key in self._known:
            return {"kernel": self._known[key]}
        if len(self.kernels) >= MAX_KERNELS:
            return {"error": f"more than {MAX_KERNELS} kernels"}
        options = {str(name): int(value) for name, value in message["options"].items()}
        compiled = Compiled(
            name=plain(message["name"], 200),
            arch="gfx950",
            asm=text,
            binary=b"",
            signature=tuple((plain(name, 200), str(kind)) for name, kind in message["signature"]),
            constants={plain(n, 200): plain(v, 200) for n, v in message["constants"].items()},
            num_warps=int(message["num_warps"]),
            lds_bytes=int(message["shared"]),
            kernel_hash=key[:16],
        )
        _ = compiled.program  # unreadable text is refused here, with a line that says why
        self.kernels.append(KernelUse(compiled, options, dict(compiled.constants)))
        self._known[key] = len(self.kernels) - 1
        return {"kernel": len(self.kernels) - 1}

    def _prebuilt(self, message: dict) -> dict:
        """aiter's GEMM for a shape, out of an installed amd-aiter: its kernel, grid and arguments, tensors by name."""
        from mxfp4lab.aiter.gemm import ARGUMENTS, choose_gemm, gemm_launch
        from mxfp4lab.gfx950 import load_launch
        from mxfp4lab.shapes import Shape

        shape = Shape(int(message["m"]), int(message["n"]), int(message["k"]))
        split = message.get("log2_k_split")
        choice = choose_gemm(shape, str(message["kernel"]) or None, None if split is None else int(split))
        launch = gemm_launch(choice, shape)
        compiled = load_launch(launch)
        arguments = []
        for (name, _), (_, size, value) in zip(ARGUMENTS, launch.args, strict=True):
            if hasattr(value, "buffer"):
                arguments.append({"tensor": value.buffer, "kind": "*u8", "name": name})
            else:
                kind = "fp32" if isinstance(value, float) else f"i{8 * size}"
                arguments.append({"value": value, "kind": kind, "name": name})
        if compiled.kernel_hash not in self._known:
            if len(self.kernels) >= MAX_KERNELS:
                return {"error": f"more than {MAX_KERNELS} kernels"}
            own = replace(compiled, signature=tuple((entry["name"], entry["kind"]) for entry in arguments))
            own.decoded = compiled.decoded
            layout = tuple((offset, size) for offset, size, _ in launch.args)
            self.kernels.append(KernelUse(own, {}, {}, layout=layout))
            self._known[compiled.kernel_hash] = len(self.kernels) - 1
        return {"kernel": self._known[compiled.kernel_hash], "grid": list(launch.grid), "args": arguments,
                "name": choice.kernel.short_name, "split": launch.grid[2] > 1}  # fmt: skip

    def _launch(self, message: dict) -> dict:
        use = self.kernels[int(message["kernel"])]
        grid = tuple(int(n) for n in message["grid"])
        if len(grid) != 3 or any(n < 0 for n in grid) or int(np.prod(grid, dtype=object)) > MAX_GRID:
            return {"error": f"grid {grid} is not three counts with at most {MAX_GRID} workgroups"}
        threads = 64 * max(1, use.compiled.num_warps)
        if max(grid) * threads >= 1 << 32:
            return {"error": f"grid {grid}: {max(grid) * threads} work-items along an axis, a GPU takes 2^32 - 1"}
        if not all(grid):
            return {}  # an empty grid launches nothing, as on the GPU
        buffers = [self._buffer(entry) for entry in message["buffers"]]
        names: dict[int, str] = {}
        arguments: list[tuple[str, int | float | tuple[int, int]]] = []
        for (name, kind), entry in zip(use.compiled.signature, message["args"], strict=True):
            if "buffer" in entry:
                index, offset = int(entry["buffer"]), int(entry["offset"])
                if not 0 <= index < len(buffers) or offset < 0:
                    return {"error": f"argument {name} points nowhere"}
                arguments.append((name, (index, offset)))
                names.setdefault(index, name)
            else:
                value = entry["value"]
                arguments.append((name, float(value) if kind.startswith(("fp", "bf", "f")) else int(value)))
        use.launches += 1
        use.grids[grid] = use.grids.get(grid, 0) + 1
        key = hashlib.blake2b(repr((message["kernel"], grid, arguments, [len(b) for b in buffers])).encode())
        for buffer in buffers:
            key.update(buffer)
        if key.digest() in self._results:
            use.replayed += 1
            written, lane_instructions, findings = self._results[key.digest()]
            for index, data in written.items():
                buffers[index][:] = np.frombuffer(data, dtype=np.uint8)
        else:
            written, lane_instructions, findings = result = self._execute(use, grid, arguments, buffers, names)
            self._held += sum(len(data) for data in written.values())
            if self._held > REPLAY_BYTES:
                self._results, self._held = {}, 0
            self._results[key.digest()] = result
        use.findings += [finding for finding in findings if finding not in use.findings]
        use.lane_instructions += lane_instructions
        return {}

    def _execute(self, use: KernelUse, grid, arguments, buffers, names):
        """(buffers that changed, as bytes by index; lane-instructions; findings) of a launch, done in place."""
        from mxfp4lab.check.execute import execute

        before, started = [buffer.copy() for buffer in buffers], time.monotonic()
        try:
            lane_instructions, findings = execute(
                use.compiled, grid, arguments, buffers, names, use.layout, self._races, self._left_s
            )
        except ValueError as error:
            finding = " ".join(str(error).split())
            use.findings += [finding] if finding not in use.findings else []
            raise ValueError(f"{use.compiled.name}: {finding}") from None
        finally:
            self._left_s -= time.monotonic() - started
        changed = {i: bytes(b) for i, b in enumerate(buffers) if not np.array_equal(b, before[i])}
        return changed, lane_instructions, findings

    def _buffer(self, entry: dict) -> np.ndarray:
        """A writable view of a tensor's storage in the window."""
        offset, size = int(entry["offset"]), int(entry["nbytes"])
        assert self.window is not None
        if not 0 <= offset <= offset + size <= len(self.window):
            raise ValueError("a buffer lies outside the window")
        return np.frombuffer(self.window, dtype=np.uint8, count=size, offset=offset)
