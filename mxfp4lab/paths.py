"""Where the data files that travel with the source tree lie, and how a path is shown to a person."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

REPO_ROOT = Path(__file__).resolve().parents[1]


class NotWritten(ValueError):
    """A file cannot be written; the message is one line that names it and says what to do."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the sentence alone."""
        return [f"NotWritten: {self}"]


@contextlib.contextmanager
def writing(path: str | Path, advice: str = "free some space there or choose another folder") -> Iterator[None]:
    """Around what writes `path`: a full disk, a read-only or missing folder become one sentence.

    Raises:
        NotWritten: naming the path, the reason and what to do.
    """
    try:
        yield
    except OSError as error:
        raise NotWritten(f"{path} cannot be written: {error.strerror or error}; {advice}") from None


def read_bounded(path: str | Path, limit: int, errors: str = "strict") -> str:
    """A text file that a person gave, as far as it is one: no device that never ends, nothing beyond `limit` bytes.

    Raises:
        OSError: it cannot be read.
        ValueError: it is longer, or is no UTF-8 and `errors` is "strict".
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe that nobody writes to must not hold us up
    with os.fdopen(descriptor, "rb") as file:
        os.set_blocking(descriptor, True)
        data = file.read(limit + 1)
    if len(data) > limit:
        raise ValueError(f"{path}: more than {limit} bytes, or no end at all")
    return data.decode("utf-8", errors).replace("\r\n", "\n").replace("\r", "\n")  # as text files are read


def data_path(name: str) -> Path:
    """The path of a file under `data/`, independent of the working directory.

    Args:
        name: path relative to `data/`, for example `"golden/golden_mxfp4_quant_op.npz"`.

    Returns:
        The absolute path of an existing file or folder.

    Raises:
        ValueError: if there is no such file; the message names the folder that was searched.
    """
    path = REPO_ROOT / "data" / name
    if not path.exists():
        raise ValueError(f"name={name!r}: no such file under {REPO_ROOT / 'data'}")
    return path


def shown_path(path: str | Path) -> str:
    """A path that works where the person is: from the working directory if it is near, else absolute.

    Near is below it, or one step up (a notebook's kernel works in `notebooks/`, the records lie in `outputs/`).
    """
    relative = os.path.relpath(path)
    far = relative.startswith(os.path.join(os.pardir, os.pardir))
    return os.path.abspath(path) if far else relative
