"""The wire between a check and the process of a submission: framed JSON and one window of shared memory.

Nothing but JSON objects and raw tensor bytes crosses it, so that bytes from an untrusted process are never executed
on the other side. The window is a sealed memory file of fixed size: neither side can shrink it under the other.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import struct
import threading
from typing import NoReturn

MAX_MESSAGE = 64 << 20  # bytes; the machine code of the largest kernel seen is about 2 MB of text
HEAP_START = 4 << 30  # the first bytes of the window carry inputs and outputs, the rest is the stand-in GPU's memory
WINDOW_BYTES = HEAP_START + 288 * 10**9 // 4096 * 4096  # sparse: only touched pages take memory
ALIGN = 4096

_HEADER = struct.Struct("<Q")


class LinkClosed(Exception):
    """The other side is gone."""


class LinkGarbage(LinkClosed):
    """The other side sent something that is no message."""


class LinkTimeout(Exception):
    """Nothing arrived in time."""


class Refused(BaseException):
    """The submission did what the stand-in does not model, or what a GPU leaves open; `except Exception` is past it."""


class Link:
    """Messages over a socket, tensors through a shared window.

    Args:
        connection: one end of a stream socket pair.
        window: a mapping of the shared memory file.
    """

    def __init__(self, connection: socket.socket, window: mmap.mmap) -> None:
        self._socket = connection
        self._pid = os.getpid()
        self.window = window
        self._lock = threading.RLock()
        self.refused: Refused | None = None

    @classmethod
    def from_descriptors(cls, socket_fd: int, window_fd: int) -> Link:
        """The child's end, from the descriptors it inherited."""
        window = mmap.mmap(window_fd, os.fstat(window_fd).st_size)
        return cls(socket.socket(fileno=socket_fd), window)

    def send(self, message: dict) -> None:
        """Send one JSON object.

        Raises:
            ValueError: if it is larger than `MAX_MESSAGE`.
            LinkClosed: if the other side is gone.
        """
        if os.getpid() != self._pid:  # a process that a submission forked speaks for nobody
            os._exit(0)
        data = json.dumps(message).encode()
        if len(data) > MAX_MESSAGE:
            raise ValueError(f"message of {len(data)} bytes is larger than {MAX_MESSAGE}")
        try:
            self._socket.settimeout(None)
            self._socket.sendall(_HEADER.pack(len(data)) + data)
        except OSError as error:
            raise LinkClosed(str(error)) from None

    def receive(self, timeout_s: float | None = None) -> dict:
        """Wait for one JSON object.

        Raises:
            LinkTimeout: if it did not arrive within `timeout_s` seconds.
            LinkClosed: if the other side is gone.
            LinkGarbage: if it sent something that is no JSON object.
        """
        self._socket.settimeout(timeout_s)
        try:
            (size,) = _HEADER.unpack(self._exactly(_HEADER.size))
            if size > MAX_MESSAGE:
                raise LinkGarbage(f"a message of {size} bytes was announced")
            message = json.loads(self._exactly(size))
        except TimeoutError:
            raise LinkTimeout(f"no answer within {timeout_s} s") from None
        except OSError as error:
            raise LinkClosed(str(error)) from None
        except (ValueError, RecursionError) as error:
            raise LinkGarbage(str(error)) from None
        if not isinstance(message, dict):
            raise LinkGarbage("a message that is not an object")
        return message

    def ask(self, message: dict) -> dict:
        """Send `message` and wait for its answer; one thread at a time."""
        with self._lock:
            self.send(message)
            return self.receive()

    def refuse(self, why: str) -> NoReturn:
        """End what the submission does, and remember it: whatever it catches, its verdict is that sentence.

        Raises:
            Refused: always.
        """
        self.refused = self.refused or Refused(why)
        raise self.refused

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            piece = self._socket.recv(min(size - len(parts), 1 << 20))
            if not piece:
                raise LinkClosed("closed")
            parts += piece
        return bytes(parts)


class Packer:
    """Hands out aligned places in a window, from its start.

    Args:
        size: bytes of the window.
    """

    def __init__(self, size: int) -> None:
        self._size = min(size, HEAP_START)
        self._next = 0

    def place(self, nbytes: int) -> int:
        """The offset of the next `nbytes` bytes.

        Raises:
            ValueError: if the window is full.
        """
        offset = self._next
        if nbytes < 0 or offset + nbytes > self._size:
            raise ValueError(f"tensors of one call need more than {self._size} bytes")
        self._next = -(-(offset + nbytes) // ALIGN) * ALIGN
        return offset


def sealed_memory(size: int) -> int:
    """Descriptor of a memory file that keeps its size: a process that shrank it would end the other by SIGBUS."""
    import fcntl

    descriptor = os.memfd_create("window", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return descriptor
