"""torch with a "cuda" device that is not there: one place that every operation on a GPU tensor passes.

Tensors really carry the label cuda:0 (`gpu_memory`), so torch's own dispatcher, autograd, views and modules treat them
as such. What a CUDA build brings is its kernels, and in their stead stands one fallback for the whole CUDA key: it
looks whether the GPU would do this (devices, dtypes, generator, order of work), lets torch's CPU kernel do it on the
same memory, and says of the results where they lie. What the CPU has no kernel for is refused by name.
"""

from __future__ import annotations

import torch

from .gpu_arguments import Arguments
from .gpu_cuda import invalid_device, replace
from .gpu_memory import Heap, register_device, restride
from .gpu_order import Order
from .gpu_rules import GRANTED, Facts, check_devices, check_dtypes, facts_of, mapped, tensors_in
from .link import HEAP_START, Link

# What the runtime itself raises.
AcceleratorError = getattr(torch, "AcceleratorError", RuntimeError)
_WAITS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "unique_dim", "unique_consecutive"}


class Backend:
    """The CUDA key.

    Args:
        link: to the check.
        heap, order: the GPU's memory, and its queues.
    """

    def __init__(self, link: Link, heap: Heap, order: Order) -> None:
        self.link, self.heap, self.order = link, heap, order
        self.generators: dict[int, torch.Generator] = {}  # the GPU's by address, which nobody else gets meanwhile
        self.triton = None  # its driver, once Triton is imported
        everything = torch.library.Library("_", "IMPL")
        everything.fallback(_plainly(self.operation), "CUDA")
        own = torch.library.Library("aten", "IMPL")
        made_here = {"as_strided": self._as_strided, "copy_": self._copy, "empty.memory_format": self._empty,
                     "empty_strided": self._empty_strided}  # fmt: skip
        for name, function in made_here.items():
            own.impl(name, _plainly(function), "CUDA")
        for name in ("resize_", "set_", "record_stream"):
            said = f"Tensor.{name} of a GPU tensor is not modelled"
            own.impl(name, lambda *_, said=said, **__: link.refuse(said), "CUDA")
        self._libraries = (everything, own)

    def run(self, function):
        """Run code of the submission; what was refused in it comes out, whatever the code caught.

        Raises:
            Refused: the first refusal.
        """
        self.order.wait()
        result = function()
        if self.triton is not None and self.triton.tuned:
            self.triton.compare_choices(function, result)
        if self.link.refused is not None:
            raise self.link.refused
        return result

    # memory -------------------------------------------------------------------------------------------------------

    def new(self, dtype: torch.dtype, size, stride, poison: bool = True) -> torch.Tensor:
        """An uninitialised GPU tensor of a dense layout."""
        reach = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if all(size) else 0
        raw = self.heap.tensor(reach * dtype.itemsize, poison=poison)
        return torch.ops.aten.as_strided_(raw.view(dtype), list(size), list(stride), 0)

    def to_gpu(self, host: torch.Tensor) -> torch.Tensor:
        """A CPU tensor's values in GPU memory, in its own dense layout where it has one."""
        made = self.new(host.dtype, host.shape, torch.empty_like(host, device="meta").stride(), poison=False)
        if made.numel():
            self.order.saved([self.heap.block_of(made)])
            self.heap.host(made).copy_(host)
        return made

    def _on_first(self, device: torch.device | None) -> None:
        if device is not None and device.type == "cuda" and (device.index or 0) > 0:
            raise invalid_device()

    def _empty(self, size, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None) -> torch.Tensor:
        like = torch.empty(size, dtype=dtype, device="meta", memory_format=memory_format or torch.contiguous_format)
        return self._empty_strided(like.shape, like.stride(), like.dtype, layout, device, pin_memory)

    def _empty_strided(self, size, stride, dtype=None, layout=None, device=None, pin_memory=None) -> torch.Tensor:
        if pin_memory:
            raise RuntimeError("Only dense CPU tensors can be pinned")
        self._on_first(device)
        return self.new(dtype or torch.get_default_dtype(), size, stride)

    def _as_strided(self, tensor, size, stride, storage_offset=None) -> torch.Tensor:
        offset = tensor.storage_offset() if storage_offset is None else storage_offset
        return restride(tensor, tensor.dtype, size, stride, offset)

    # copies -------------------------------------------------------------------------------------------------------

    def _copy(self, target, source, non_blocking=False) -> torch.Tensor:
        for one, other in ((target, source), (source, target)):
            if one.dtype == getattr(torch, "float4_e2m1fn_x2", None) != other.dtype:
                raise AcceleratorError("CUDA error: device-side assert triggered (a conversion from or to float4)")
        written, between = self.heap.blocks_of([target]), target.is_cuda != source.is_cuda
        late = between and non_blocking and source.is_cuda and any(block.pinned for block in written)
        if between and not late and not (non_blocking and target.is_cuda):
            self.order.wait()
        if between and target.is_cuda:
            self.order.arrive()

        def copy() -> None:
            self._host(target).copy_(self._host(source))

        self.order.saved(written)
        if late:
            now = self._host(source).clone()
            self.order.issued += 1
            self.order.later(lambda: target.copy_(now))
            return target
        copy()
        self.order.ran(copy, (target, source))
        return target

    def _host(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.heap.host(tensor) if tensor.is_cuda else tensor

    # everything else ----------------------------------------------------------------------------------------------

    def operation(self, op, *args, **kwargs):
        """Do one operation, or raise what the GPU would raise.

        Raises:
            RuntimeError: tensors of two devices, or another device's generator.
            NotImplementedError: a dtype that the GPU has not for this operation.
            AcceleratorError: a second GPU.
        """
        facts = facts_of(op)
        bound = {name: value for (name, _, _), value in zip(facts.arguments, args, strict=False)} | kwargs
        tensors = tensors_in(list(bound.values()), [])
        device = bound.get("device")
        if isinstance(device, torch.device):
            self._on_first(device)
            bound["device"] = torch.device("cpu")
        check_devices(facts, bound, tensors)
        check_dtypes(facts, bound, tensors)
        if facts.generator:
            bound["generator"] = self._generator_for(bound.get("generator"))
        if facts.name in _WAITS:
            self.order.wait()
        lowered: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # id of the host twin -> (it, the GPU tensor)
        twins: dict[int, torch.Tensor] = {}

        def lower(tensor: torch.Tensor) -> torch.Tensor:
            if not tensor.is_cuda:
                return tensor
            if id(tensor) not in twins:
                twins[id(tensor)] = twin = self.heap.host(tensor)
                lowered[id(twin)] = (twin, tensor)
            return twins[id(tensor)]

        def lower_out(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.numel() or not tensor.is_cuda:
                return lower(tensor)
            twin = torch.empty(0, dtype=tensor.dtype)  # to be sized by the operation
            lowered[id(twin)] = (twin, tensor)
            return twin

        given = {}
        for name, kind, _ in facts.arguments:
            if name in bound:
                value = bound[name]
                if isinstance(value, (bool, int, float)) and kind in ("Tensor", "Optional[Tensor]"):
                    value = torch.tensor(value)  # a number that became a tensor on its way
                given[name] = mapped(value, lower_out if name in facts.outs else lower)
        positional = [given.pop(name) for name, _, keyword in facts.arguments if not keyword and name in given]
        self.order.saved(self.heap.blocks_of(tensors_in([bound.get(name) for name in facts.written], [])))

        def compute():
            return self._on_cpu(op, facts, positional, given)

        result = compute()
        for twin, tensor in lowered.values():
            if twin.shape != tensor.shape or twin.stride() != tensor.stride():
                tensor.data = self.to_gpu(twin)
        on_cpu = isinstance(device, torch.device) and device.type == "cpu"
        made: list[torch.Tensor] = []

        def lift(tensor: torch.Tensor) -> torch.Tensor:
            if id(tensor) in lowered:
                return lowered[id(tensor)][1]
            if on_cpu or any(tensor is t for t in tensors):
                return tensor
            if tensor.layout != torch.strided:
                self.link.refuse(f"a GPU tensor of layout {tensor.layout} is not modelled")
            block = self.heap.block_of(tensor)
            if block is not None:
                base = next(g for t, g in lowered.values() if self.heap.block_of(g) is block)
                return restride(base, tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset())
            made.append(self.to_gpu(tensor))
            return made[-1]

        lifted = mapped(result, lift)
        self.order.ran(lambda: self._again(compute, made), (tensors, made))
        return lifted

    def _again(self, compute, made: list[torch.Tensor]) -> None:
        """A captured operation, replayed into the tensors that it made when it was captured."""
        fresh = [t for t in tensors_in([compute()], []) if self.heap.block_of(t) is None]
        for old, new in zip(made, fresh, strict=False):
            self.heap.host(old).copy_(new)

    def _generator_for(self, given: torch.Generator | None) -> torch.Generator:
        if given is None:
            return torch.cuda.default_generators[0]
        if given._cdata not in self.generators:
            raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
        return given

    def _on_cpu(self, op, facts: Facts, positional: list, given: dict):
        try:
            return op(*positional, **given)
        except NotImplementedError as error:
            if op._overloadname == "dtype":  # mm and its like with a dtype for the result
                *operands, dtype = positional
                if any(t.dtype not in (torch.bfloat16, torch.float16, torch.float32) for t in operands):
                    raise
                return getattr(torch, facts.name)(*[t.to(dtype) for t in operands])
            if "Could not run" in str(error):
                self.link.refuse(f"{op.name()} on a GPU tensor is not modelled: torch has no CPU kernel for it")
            allowed = {getattr(torch, name) for name in GRANTED.get(facts.name, "").split() if hasattr(torch, name)}
            mine = [t for t in tensors_in([positional, given], []) if t.dtype in allowed]
            if not mine:
                raise NotImplementedError(str(error).replace("_cpu", "_cuda").replace("'CPU'", "'CUDA'")) from None
        return self._widened(op, facts, positional, given, mine[0].dtype)

    def _widened(self, op, facts: Facts, positional: list, given: dict, dtype: torch.dtype):
        """A dtype that the GPU takes and the CPU does not, by way of a wider one that holds all its values."""
        wide = {id(t): t.double() for t in tensors_in([positional, given], []) if t.dtype == dtype}
        narrow = {id(wide[id(t)]): t for t in tensors_in([positional, given], []) if id(t) in wide}
        result = op(*mapped(positional, lambda t: wide.get(id(t), t)), **mapped(given, lambda t: wide.get(id(t), t)))
        if facts.written:
            for tensor in narrow.values():
                tensor.copy_(wide[id(tensor)].to(dtype))
        return mapped(result, lambda t: narrow.get(id(t), t.to(dtype) if t.dtype == torch.float64 else t))


def _plainly(function):
    """A function inside which no function mode is asked: neither ours nor one that sets a default device."""

    def plain(*args, **kwargs):
        with torch._C.DisableTorchFunction():
            return function(*args, **kwargs)

    return plain


def install(link: Link) -> Backend:
    """Put the stand-in GPU into torch: memory, operations, and all of `torch.cuda`.

    Raises:
        RuntimeError: if this torch does not let it.
    """
    register_device()
    heap = Heap(link.window, HEAP_START)
    backend = Backend(link, heap, Order(link, heap))
    replace(backend)
    Arguments(heap, backend.generators).hold()
    x = torch.arange(12, dtype=torch.float32, device="cuda").view(3, 4)
    if not x.is_cuda or heap.block_of(x) is None or (x[1] @ x[1:].T).tolist() != [126, 214]:
        raise RuntimeError(f"the emulator backend cannot stand in for a GPU under torch {torch.__version__}")
    return backend
