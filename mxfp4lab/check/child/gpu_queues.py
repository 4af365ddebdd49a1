"""The order of work on the stand-in GPU: queues, events, captured graphs, and who has waited for whom.

Work runs at once here, in the order in which it is given. On a GPU only work of one queue keeps that order; work of
two queues, and the host's own, does so where somebody waited. So every piece of work gets a number on its queue, every
block of memory remembers who wrote it last, and touching it without having waited is refused. What arrives on the host
late on a GPU arrives late here too: a copy into pinned memory is done when the host waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import torch

from .gpu_memory import Block, Heap
from .link import Link

HOST = -1  # the host, among queues
DEVICE = torch.device("cuda", 0)


class Order:
    """Who has waited for what.

    Args:
        link: to which a race is told.
        heap: the GPU's memory.

    Attributes:
        capturing: the graph that records work instead of running it.
    """

    def __init__(self, link: Link, heap: Heap) -> None:
        self._link, self._heap = link, heap
        self._issued: dict[int, int] = {0: 0}
        self._known: dict[int, dict[int, int]] = {HOST: {}, 0: {}}
        self._late: list[tuple[int, int, Callable[[], object]]] = []  # (queue, number, copy to the host)
        self._here = threading.local()
        self.capturing: Graph | None = None
        heap.queue = lambda: self.current

    def new_queue(self) -> int:
        number = len(self._issued)
        self._issued[number], self._known[number] = 0, {}
        return number

    @property
    def current(self) -> int:
        """The queue that this thread gives work to."""
        return getattr(self._here, "queue", 0)

    @current.setter
    def current(self, queue: int) -> None:
        self._here.queue = queue

    def seen(self, queue: int) -> dict[int, int]:
        """What is done when the work that `queue` has now is done: queue -> number."""
        known = dict(self._known[HOST])
        for other, number in self._known[queue].items():
            known[other] = max(known.get(other, 0), number)
        known[queue] = self._issued[queue]
        return known

    def wait(self, waiting: int, for_what: dict[int, int]) -> None:
        """From here on `waiting` (a queue or `HOST`) runs after that work."""
        known = self._known[waiting]
        for queue, number in for_what.items():
            known[queue] = max(known.get(queue, 0), number)
        if waiting == HOST:
            late, self._late = self._late, []
            for queue, number, copy in late:
                if self.is_done({queue: number}):
                    copy()
                else:
                    self._late.append((queue, number, copy))

    def synchronize(self, queue: int | None = None) -> None:
        """The host waits for one queue, or for all of them.

        Raises:
            RuntimeError: while a graph is captured, as the runtime.
        """
        self.refuse_in_capture()
        for one in list(self._issued) if queue is None else [queue]:
            self.wait(HOST, self.seen(one))

    def is_done(self, work: dict[int, int]) -> bool:
        """Has the host waited for that work?"""
        return all(self._known[HOST].get(queue, 0) >= number for queue, number in work.items())

    def poll(self, work: dict[int, int]) -> bool:
        """Is it done? What is not is so the next time that somebody asks: a loop that polls ends."""
        done = self.is_done(work)
        self.wait(HOST, work)
        return done

    def refuse_in_capture(self) -> None:
        """Raise what the runtime raises when the host waits while a graph is captured."""
        if self.capturing is not None:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    def work(self, touched: Iterable[Block], written: Iterable[Block]) -> None:
        """Number a piece of work on the current queue and look whether it comes after who wrote what it touches."""
        self._issued[self.current] += 1
        for block in touched:
            if block.writer is not None and not self._has_waited(*block.writer):
                self._link.refuse(
                    f"{_name(self.current)} touches what {_name(block.writer[0])} writes, and has not waited for it: "
                    "on a GPU the order is open (stricter than the task, where it may go well)"
                )
        self.wrote(written)

    def wrote(self, blocks: Iterable[Block]) -> None:
        """The work that was numbered last writes these."""
        for block in blocks:
            block.writer = (self.current, self._issued[self.current])

    def _has_waited(self, other: int, number: int) -> bool:
        known = max(self._known[who].get(other, 0) for who in (self.current, HOST))
        return self.current == other or known >= number

    def later(self, copy: Callable[[], object]) -> None:
        """A copy to the host that is the last work of the current queue: the host sees it once it has waited."""
        self._late.append((self.current, self._issued[self.current], copy))

    def saved(self, blocks: Iterable[Block]) -> None:
        """Before work that a graph captures writes blocks: what they hold comes back when the capture ends."""
        if self.capturing is not None:
            for block in blocks:
                self.capturing.before.setdefault(block.address, (block, self._heap.bytes_of(block).clone()))

    def run(self, work: Callable[[], object], kept: object = None) -> None:
        """Work has just run: a capturing graph remembers how to run it again, and keeps what it touches alive."""
        if self.capturing is not None:
            self.capturing.steps.append((work, kept))

    def end_capture(self) -> None:
        """Nothing that was captured has run yet: the memory gets its bytes back."""
        graph, self.capturing = self.capturing, None
        for block, content in graph.before.values():
            self._heap.bytes_of(block).copy_(content)
        graph.before = {}


def _name(queue: int) -> str:
    return "the default queue" if queue == 0 else f"side queue {queue}"


class Graph:
    """`torch.cuda.CUDAGraph`: what was captured, run again by `replay`."""

    order: Order  # set where torch.cuda is replaced

    def __init__(self, keep_graph: bool = False) -> None:
        self.steps: list[tuple[Callable[[], object], object]] = []
        self.before: dict[int, tuple] = {}

    def capture_begin(self, pool: object = None, capture_error_mode: str = "global") -> None:
        self.order.refuse_in_capture()
        self.steps, self.order.capturing = [], self

    def capture_end(self) -> None:
        self.order.end_capture()

    def replay(self) -> None:
        for work, _ in self.steps:
            work()

    def reset(self) -> None:
        self.steps = []


class GraphContext:
    """`torch.cuda.graph`: captures what runs inside it, on a side queue that has waited for everything."""

    def __init__(self, cuda_graph: Graph, pool: object = None, stream: Queue | None = None, **_: object) -> None:
        self._graph, self._queue = cuda_graph, stream

    def __enter__(self) -> None:
        order = self._graph.order
        order.synchronize()
        self._outer = order.current
        order.current = self._queue.number if self._queue else order.new_queue()
        self._graph.capture_begin()

    def __exit__(self, *_: object) -> None:
        order = self._graph.order
        self._graph.capture_end()
        order.wait(HOST, order.seen(order.current))
        order.current = self._outer


class Queue:
    """`torch.cuda.Stream`."""

    order: Order
    device, device_index, device_type, priority = DEVICE, 0, 1, 0

    def __init__(self, device: object = None, priority: int = 0, stream_id: int | None = None, **_: object) -> None:
        self.number = self.cuda_stream = self.stream_id = self.order.new_queue() if stream_id is None else stream_id

    def synchronize(self) -> None:
        self.order.synchronize(self.number)

    def query(self) -> bool:
        return self.order.poll(self.order.seen(self.number))

    def wait_event(self, event: Event) -> None:
        event.wait(self)

    def wait_stream(self, stream: Queue) -> None:
        self.order.wait(self.number, self.order.seen(stream.number))

    def record_event(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Queue:
        self._outer = self.order.current
        self.order.current = self.number
        return self

    def __exit__(self, *_: object) -> None:
        self.order.current = self._outer

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Queue) and other.number == self.number

    def __hash__(self) -> int:
        return hash(("queue", self.number))


class Event:
    """`torch.cuda.Event` without a clock: any two events are one millisecond apart."""

    order: Order

    def __init__(self, enable_timing: bool = False, **_: object) -> None:
        self.enable_timing = enable_timing
        self._work: dict[int, int] | None = None

    def record(self, stream: Queue | None = None) -> None:
        self._work = self.order.seen(self.order.current if stream is None else stream.number)

    def wait(self, stream: Queue | None = None) -> None:
        self.order.wait(self.order.current if stream is None else stream.number, self._work or {})

    def synchronize(self) -> None:
        self.order.refuse_in_capture()
        self.order.wait(HOST, self._work or {})

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
        if not all(self.order.is_done(event._work) for event in both):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return 1.0
