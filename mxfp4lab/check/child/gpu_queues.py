"""The order of work on the stand-in GPU: queues, events, captured graphs, and who has waited for whom.

Work runs at once here, in the order in which it is given. On a GPU only work of one queue keeps that order; work of
two queues, and the host's own, does so where somebody waited. So every piece of work gets a number on its queue, every
block of memory remembers who touched it last, and touching it without having waited is refused.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable

from .gpu_memory import Block, Heap
from .link import Link

HOST = -1  # the host, among queues
_RACE = "on a GPU the order is open (stricter than the task, where it may go well)"


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
        self._here = threading.local()
        self._polled: weakref.WeakKeyDictionary[object, dict[int, int]] = weakref.WeakKeyDictionary()
        self.capturing: Graph | None = None
        heap.queue = lambda: self.current

    # queues -------------------------------------------------------------------------------------------------------

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

    def synchronize(self, queue: int | None = None) -> None:
        """The host waits for one queue, or for all of them."""
        self.refuse_in_capture()
        for one in list(self._issued) if queue is None else [queue]:
            self.wait(HOST, self.seen(one))

    def is_done(self, work: dict[int, int]) -> bool:
        """Has the host waited for that work?"""
        return all(self._known[HOST].get(queue, 0) >= number for queue, number in work.items())

    def poll(self, asker: object, work: dict[int, int]) -> bool:
        """Is it done? Not the first time that somebody asks about new work, then yes: a loop that polls ends."""
        if not self.is_done(work) and self._polled.get(asker) != work:
            self._polled[asker] = work
            return False
        self.wait(HOST, work)
        return True

    def refuse_in_capture(self) -> None:
        """Raise what the runtime raises when the host waits while a graph is captured."""
        if self.capturing is not None:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    # work ---------------------------------------------------------------------------------------------------------

    def work(self, reads: Iterable[Block], writes: Iterable[Block]) -> None:
        """Number a piece of work on the current queue and look whether it is in order with what it touches."""
        queue = self.current
        self._issued[queue] += 1
        number = self._issued[queue]
        for block in reads:
            self._after_writer(block, queue)
            block.readers[queue] = number
        for block in writes:
            self._after_writer(block, queue)
            self._after_readers(block, queue)
            block.writer, block.readers = (queue, number), {}

    def wrote(self, blocks: Iterable[Block]) -> None:
        """The work that was numbered last turned out to have written these."""
        queue = self.current
        for block in blocks:
            self._after_readers(block, queue)
            block.writer, block.readers = (queue, self._issued[queue]), {}

    def host_touches(self, block: Block, writes: bool) -> None:
        """The host reads or writes pinned memory."""
        self._after_writer(block, HOST)
        if writes:
            self._after_readers(block, HOST)

    def _after_writer(self, block: Block, queue: int) -> None:
        if block.writer is not None and not self._has_waited(queue, *block.writer):
            self._link.refuse(
                f"{_name(queue)} touches what {_name(block.writer[0])} writes, and has not waited for it: {_RACE}"
            )

    def _after_readers(self, block: Block, queue: int) -> None:
        for reader, number in block.readers.items():
            if not self._has_waited(queue, reader, number):
                self._link.refuse(
                    f"{_name(queue)} writes what {_name(reader)} reads, and has not waited for it: {_RACE}"
                )

    def _has_waited(self, queue: int, other: int, number: int) -> bool:
        if queue == other:
            return True
        known = self._known[queue].get(other, 0)
        return max(known, self._known[HOST].get(other, 0)) >= number

    def saved(self, blocks: Iterable[Block]) -> None:
        """Before work that a graph captures writes blocks: what they hold comes back when the capture ends."""
        if self.capturing is not None:
            for block in blocks:
                self.capturing.before.setdefault(block.address, (block, self._heap.bytes_of(block).clone()))

    def run(self, work: Callable[[], object], kept: object = None) -> None:
        """Work has just run: a capturing graph remembers how to run it again, and keeps what it touches alive."""
        if self.capturing is not None:
            self.capturing.steps.append((work, kept))


def _name(queue: int) -> str:
    return {HOST: "the host", 0: "the default queue"}.get(queue, f"side queue {queue}")


class Graph:
    """`torch.cuda.CUDAGraph`: what was captured, run again by `replay`."""

    order: Order  # set where torch.cuda is replaced

    def __init__(self, keep_graph: bool = False) -> None:
        self.steps: list[tuple[Callable[[], object], object]] = []
        self.before: dict[int, tuple] = {}
        self._whole = False

    def capture_begin(self, pool: object = None, capture_error_mode: str = "global") -> None:
        self.order.refuse_in_capture()
        self.steps, self._whole = [], False
        self.order.capturing = self

    def capture_end(self) -> None:
        self.order.capturing = None
        self._whole = True
        for block, content in self.before.values():  # nothing has run yet
            self.order._heap.bytes_of(block).copy_(content)
        self.before = {}

    def replay(self) -> None:
        if not self._whole:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        for work, _ in self.steps:
            work()

    def reset(self) -> None:
        self.steps, self._whole = [], False

    def pool(self) -> tuple[int, int]:
        return (0, 1)

    def instantiate(self) -> None:
        """It is ready once it is captured."""


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

    def __init__(self, device: object = None, priority: int = 0, number: int | None = None, **_: object) -> None:
        self.number = self.order.new_queue() if number is None else number
        self.priority = priority
        self.device_index, self.device_type = 0, 1

    @property
    def device(self):
        import torch

        return torch.device("cuda", 0)

    @property
    def cuda_stream(self) -> int:
        return self.number

    stream_id = native_handle = cuda_stream

    def synchronize(self) -> None:
        self.order.synchronize(self.number)

    def query(self) -> bool:
        return self.order.poll(self, self.order.seen(self.number))

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

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_: object
    ) -> None:
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
        return self._work is None or self.order.poll(self, self._work)

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
