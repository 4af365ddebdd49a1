"""Runs a plan on a GPU: buffers allocated once per plan, outputs fresh on every call.

The compiled kernel and its arguments are prepared once, and a call goes through the compiled kernel's own launcher
with the least host work.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mxfp4lab.gfx950 import Compiled, compile_launch, gpu_target, launch_job, triton_source, unwrap
from mxfp4lab.plan import TORCH_NAMES, Plan, Ref


def torch_dtype(name: str) -> Any:
    """A plan's dtype name as torch's."""
    import torch

    return getattr(torch, TORCH_NAMES[name])


class PlanRunner:
    """A plan bound to a device, ready to be called.

    Calling it computes C from the inputs that are bound. Workspaces live as long as the runner; nothing that depends on
    the values of an input is kept from one call to the next.
    """

    def __init__(self, plan: Plan, device: int | str = "cuda") -> None:
        """Allocate workspaces.

        Args:
            plan: for the architecture of the device.
            device: torch's name or number of the GPU.
        """
        self.plan = plan
        self._device = f"cuda:{device}" if isinstance(device, int) else device
        self._outputs = [buffer for buffer in plan.buffers if buffer.role == "output"]
        self._tensors = {b.name: self._allocate(b) for b in plan.buffers if b.role == "workspace"}
        self._issue: list[Callable[[dict[str, Any]], None]] = []

    def bind(self, inputs: Mapping[str, Any]) -> PlanRunner:
        """Take input tensors (on the device, contiguous); compile (or take from the cache) and prepare every launch.

        Raises:
            ValueError: an input is missing, or has another shape, dtype or place than the plan's buffer.
            CompileError: a kernel does not compile.
        """
        names = [buffer.name for buffer in self.plan.buffers if buffer.role == "input"]
        for name in names:
            if name not in inputs:
                raise ValueError(f"inputs lack {name!r}; the plan has {', '.join(names)}")
            self._tensors[name] = _checked(self.plan.buffer(name), inputs[name])
        self._issue = [self._prepare(launch) for launch in self.plan.launches]
        return self

    def __call__(self) -> Any:
        """One computation: C [M, N] bf16 in memory of its own."""
        outputs = {buffer.name: self._allocate(buffer) for buffer in self._outputs}
        for issue in self._issue:
            issue(outputs)
        c = outputs[self.plan.output]
        return c if c.shape[0] == self.plan.output_rows else c[: self.plan.output_rows]

    def _allocate(self, buffer: Any) -> Any:
        import torch

        if buffer.fill is None:
            return torch.empty(buffer.shape, dtype=torch_dtype(buffer.dtype), device=self._device)
        return torch.full(buffer.shape, buffer.fill, dtype=torch_dtype(buffer.dtype), device=self._device)

    def _prepare(self, launch: Any) -> Callable[[dict[str, Any]], None]:
        compiled = compile_launch(launch, self.plan.buffers, self.plan.arch)
        if not hasattr(launch, "fn"):
            return self._prepare_code_object(launch, compiled)
        kernel = launchable(launch, self.plan, compiled)[launch.grid]
        named = {**dict(launch.constants), **dict(launch.args)}
        arguments = [named.get(parameter.name, parameter.default) for parameter in unwrap(launch.fn).params]
        fresh = [(place, value.buffer) for place, value in enumerate(arguments)
                 if isinstance(value, Ref) and value.buffer not in self._tensors]  # fmt: skip
        arguments = [self._tensors.get(value.buffer) if isinstance(value, Ref) else value for value in arguments]

        def issue(outputs: dict[str, Any]) -> None:
            for place, name in fresh:
                arguments[place] = outputs[name]
            kernel(*arguments)

        return issue

    def _prepare_code_object(self, launch: Any, compiled: Compiled) -> Callable[[dict[str, Any]], None]:
        import torch

        from mxfp4lab.gpu.module import Module

        args, places = [], {}
        for offset, size, value in launch.args:
            if isinstance(value, Ref) and value.buffer not in self._tensors:
                places[value.buffer] = offset
                args.append((offset, size, 0))
            elif isinstance(value, Ref):
                args.append((offset, size, self._tensors[value.buffer].data_ptr()))
            else:
                args.append((offset, size, value))
        call = Module(compiled.binary, launch.name).prepare(launch.grid, launch.block, args, places)

        def issue(outputs: dict[str, Any]) -> None:
            queue = torch.cuda.current_stream().cuda_stream
            call(queue, {name: outputs[name].data_ptr() for name in places})

        return issue


def launchable(launch: Any, plan: Plan, compiled: Compiled) -> Any:
    """Triton's `CompiledKernel` for machine code that was compiled elsewhere; ``[grid](*all arguments)`` launches it.

    The kernel is not compiled again: its binary and the compiler's metadata are handed to Triton as the files that its
    own cache would hold.
    """
    from triton.compiler import CompiledKernel

    if not compiled.metadata:
        raise ValueError(f"{compiled.name}: the compiled kernel lacks the compiler's metadata; compile it again")
    job = launch_job(launch, plan.buffers, plan.arch)
    text, binary = ("ptx", "cubin") if gpu_target(plan.arch).backend == "cuda" else ("amdgcn", "hsaco")
    contents = {"json": json.dumps(compiled.metadata).encode(), text: compiled.asm.encode(), binary: compiled.binary}
    with tempfile.TemporaryDirectory(prefix="mxfp4lab-") as folder:
        files = {f"{compiled.name}.{ending}": Path(folder) / f"{compiled.name}.{ending}" for ending in contents}
        for path, content in zip(files.values(), contents.values(), strict=True):
            path.write_bytes(content)
        return CompiledKernel(triton_source(job), {name: str(path) for name, path in files.items()}, job.key)


def on_device(inputs: Mapping[str, Any], device: int | str = "cuda") -> dict[str, Any]:
    """Input tensors copied to the GPU."""
    place = f"cuda:{device}" if isinstance(device, int) else device
    return {name: tensor.to(place) for name, tensor in inputs.items()}


def _checked(buffer: Any, tensor: Any) -> Any:
    wanted = torch_dtype(buffer.dtype)
    if tensor.dtype != wanted and tensor.element_size() == 1 and buffer.dtype == "u8":
        with contextlib.suppress(RuntimeError):
            tensor = tensor.view(wanted)  # float4 and e8m0 are bytes to us
    if tuple(tensor.shape) != tuple(buffer.shape) or tensor.dtype != wanted:
        found = f"{tensor.dtype} {tuple(tensor.shape)}"
        raise ValueError(f"{buffer.name} is {found}; the plan needs {wanted} {tuple(buffer.shape)}")
    if not tensor.is_contiguous() or tensor.data_ptr() % 16:
        raise ValueError(f"{buffer.name} must be contiguous and start at a multiple of 16 bytes")
    return tensor
