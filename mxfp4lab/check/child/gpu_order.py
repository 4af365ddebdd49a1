"""The order of work on the stand-in GPU: its queue, what the host has waited for, events, and captured graphs.

Work runs at once here, in the order in which it is given, as it does on the one queue that a submission can have: the
task's server refuses the word for another. What arrives on the host late on a GPU arrives late here too: a copy into
pinned memory is done when the host waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from .gpu_memory import Block, Heap
from .link import Link

DEVICE = torch.device("cuda", 0)


class Order:
    """What was given to the GPU, and how much of it the host has waited for.

    Args:
        link: to which what is not modelled is told.
        heap: the GPU's memory.

    Attributes:
        issued: pieces of work so far; done: those that the host has waited for.
        capturing: the graph that records work instead of running it.
    """

    def __init__(self, link: Link, heap: Heap) -> None:
        self.link, self._heap = link, heap
        self.issued = self.done = 0
        self._late: list[tuple[int, Callable[[], object]]] = []  # (piece of work, copy to the host)
        self.capturing: Graph | None = None

    def wait(self, number: int | None = None) -> None:
        """The host waits for the first `number` pieces of work, or for all.

        Raises:
            RuntimeError: while a graph is captured, as the runtime.
        """
        if self.capturing is not None:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        self.done = max(self.done, self.issued if number is None else number)
        self.arrive(self.done)

    def poll(self, number: int) -> bool:
        """Is it done? What is not is so the next time that somebody asks: a loop that polls ends."""
        done = self.done >= number
        self.wait(number)
        return done

    def arrive(self, number: int | None = None) -> None:
        """Do the late copies among the first `number` pieces of work, or all: later work of the queue sees them."""
        while self._late and (number is None or self._late[0][0] <= number):
            self._late.pop(0)[1]()

    def later(self, copy: Callable[[], object]) -> None:
        """The last piece of work is a copy to the host: the host sees it once it has waited."""
        if self.capturing is not None:
            self.link.refuse("a copy to the host inside a captured graph is not modelled")
        self._late.append((self.issued, copy))

    def saved(self, blocks: Iterable[Block]) -> None:
        """Before work that a graph captures writes blocks: what they hold comes back when the capture ends."""
        if self.capturing is not None:
            for block in blocks:
                self.capturing.before.setdefault(block.address, (block, self._heap.bytes_of(block).clone()))

    def ran(self, work: Callable[[], object], kept: object = None) -> None:
        """Work has just run: a capturing graph remembers how to run it again, and keeps what it touches alive."""
        self.issued += 1
        if self.capturing is not None:
            self.capturing.steps.append((work, kept))

    def end_capture(self) -> None:
        """Nothing that was captured has run yet: the memory gets its bytes back."""
        graph, self.capturing = self.capturing, None
        for block, content in graph.before.values():
            self._heap.bytes_of(block).copy_(content)
        graph.before = {}


class Graph:
    """`torch.cuda.CUDAGraph`: what was captured, run again by `replay`."""

    order: Order  # set where torch.cuda is replaced

    def __init__(self, keep_graph: bool = False) -> None:
        self.steps: list[tuple[Callable[[], object], object]] = []
        self.before: dict[int, tuple] = {}

    def capture_begin(self, pool: object = None, capture_error_mode: str = "global") -> None:
        self.order.wait()
        self.steps, self.order.capturing = [], self

    def capture_end(self) -> None:
        self.order.end_capture()

    def replay(self) -> None:
        self.order.issued += 1
        for work, _ in self.steps:
            work()

    def reset(self) -> None:
        self.steps = []


class GraphContext:
    """`torch.cuda.graph`: captures what runs inside it."""

    def __init__(self, cuda_graph: Graph, **_: object) -> None:
        self._graph = cuda_graph

    def __enter__(self) -> None:
        self._graph.capture_begin()

    def __exit__(self, *_: object) -> None:
        self._graph.capture_end()


class Queue:
    """`torch.cuda.Stream`: the default one; another is refused."""

    order: Order
    device, device_index, device_type, cuda_stream, stream_id, priority = DEVICE, 0, 1, 0, 0, 0

    def __init__(self, *_: object, stream_id: int | None = None, **__: object) -> None:
        if stream_id != 0:
            self.order.link.refuse("a second queue of work is not modelled, and the task's server refuses its name")

    def synchronize(self) -> None:
        self.order.wait()

    def query(self) -> bool:
        return self.order.poll(self.order.issued)

    def wait_event(self, event: Event) -> None:
        """Work of one queue is in order."""

    def wait_stream(self, stream: Queue) -> None:
        """There is one."""

    def record_event(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        event.record(self)
        return event

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Queue)

    def __hash__(self) -> int:
        return 0


class Event:
    """`torch.cuda.Event` without a clock: any two events are one millisecond apart."""

    order: Order

    def __init__(self, enable_timing: bool = False, **_: object) -> None:
        self.enable_timing = enable_timing
        self._work: int | None = None

    def record(self, stream: Queue | None = None) -> None:
        self._work = self.order.issued

    def wait(self, stream: Queue | None = None) -> None:
        """Work of one queue is in order."""

    def synchronize(self) -> None:
        self.order.wait(self._work or 0)

    def query(self) -> bool:
        return self._work is None or self.order.poll(self._work)

    def elapsed_time(self, end_event: Event) -> float:
        """One millisecond, once both events are done.

        Raises:
            ValueError: as torch: an event without timing, or not recorded.
            RuntimeError: as torch: work before an event is not known to be done.
        """
        both = (self, end_event)
        if not all(event.enable_timing for event in both):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if any(event._work is None for event in both):
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if any(event._work > self.order.done for event in both):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return 1.0
