"""Where a machine can keep nobody from writing: what the lab's files were before a submission ran, and after it.

Records (`outputs/runs`) only ever grow. One that lost or changed a byte is put back from a copy, the damaged file kept
beside it. The lab's other files are compared and named, never touched: their owner may be the one who changed them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mxfp4lab.paths import REPO_ROOT

MAX_KEPT_BYTES = 256 << 20  # of records together; of what is beyond, only the change is seen
NAMED = 5
_PASSED_OVER = ("__pycache__", "node_modules")


@dataclass(frozen=True)
class _Seen:
    """One file as it was; `content` where a copy was kept."""

    size: int
    mode: int
    changed_ns: int
    inode: int
    content: bytes | None


class Keeper:
    """What the lab's files were when it was made.

    Args:
        everything: the lab's other files too; without it records alone (Landlock forbids writes, but not chmod).
        records: folders whose `runs/` hold records; without it `outputs` of the repository and of this folder.
        root: the lab's own files.
    """

    def __init__(self, everything: bool = True, records: list[Path] | None = None, root: Path = REPO_ROOT) -> None:
        folders = [REPO_ROOT / "outputs", Path.cwd() / "outputs"] if records is None else records
        self._runs = sorted({folder.resolve() / "runs" for folder in folders})
        self._root = root.resolve()
        self._everything = everything
        self._kept = 0
        self._records = {path: self._look(path, keep=True) for path in self._record_files()}
        self._others = {path: self._look(path) for path in self._other_files()}

    def _record_files(self) -> Iterator[Path]:
        for folder in self._runs:
            yield from (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())

    def _other_files(self) -> Iterator[Path]:
        """Files of the lab outside `outputs`, hidden folders and caches."""
        if not self._everything:
            return
        for folder, below, names in os.walk(self._root):
            here = Path(folder)
            below[:] = [n for n in below if not n.startswith(".") and n not in _PASSED_OVER]
            if here == self._root:
                below[:] = [n for n in below if n != "outputs"]
            yield from (here / name for name in names)

    def _look(self, path: Path, keep: bool = False) -> _Seen | None:
        try:
            found = path.lstat()
            content = None
            if keep and self._kept + found.st_size <= MAX_KEPT_BYTES:
                content = path.read_bytes()
                self._kept += len(content)
        except OSError:
            return None
        return _Seen(found.st_size, stat.S_IMODE(found.st_mode), found.st_ctime_ns, found.st_ino, content)

    def compare(self) -> tuple[list[str], list[str]]:
        """Look again; put damaged records back.

        Returns:
            (what happened to records, what else changed): sentences.
        """
        damaged = [line for path, seen in self._records.items() if seen for line in self._restore(path, seen)]
        now = {path: self._look(path) for path in self._other_files()}
        changed = [path for path, seen in self._others.items() if now.get(path) != seen]
        changed += [path for path in now if path not in self._others]
        names = [str(path.relative_to(self._root)) for path in changed]
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        others = [f"changed while it ran, by whomever: {', '.join(names[:NAMED])}{more}"] if names else []
        return damaged, others

    def _restore(self, path: Path, seen: _Seen) -> Iterator[str]:
        now = self._look(path)
        if now is not None and (now.changed_ns, now.size, now.inode) == (seen.changed_ns, seen.size, seen.inode):
            return
        if now is not None and self._begins_as_before(path, seen):
            if now.mode != seen.mode:
                with contextlib.suppress(OSError):
                    path.chmod(seen.mode)
                yield f"{path}: its permissions were changed: set back"
            return
        what = "was removed" if now is None else "lost rows or was overwritten"
        if seen.content is None:
            yield f"{path} {what}; it is too large, no copy was kept"
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if now is not None:
                beside = path.with_name(f"{path.name}.damaged-{uuid.uuid4().hex[:6]}")
                os.replace(path, beside)
                what += f" (kept as {beside.name})"
            temporary = path.with_name(f".{path.name}.{os.getpid()}")
            temporary.write_bytes(seen.content)
            temporary.chmod(seen.mode)
            os.replace(temporary, path)
        except OSError as error:
            yield f"{path} {what} and cannot be put back: {error.strerror or error}"
            return
        yield f"{path} {what}: put back"

    @staticmethod
    def _begins_as_before(path: Path, seen: _Seen) -> bool:
        """Rows may have been added meanwhile by a search; none may be gone."""
        if seen.content is None:
            return False
        digest, left = hashlib.blake2b(), seen.size
        try:
            with path.open("rb") as file:
                while left and (piece := file.read(min(left, 1 << 20))):
                    digest.update(piece)
                    left -= len(piece)
        except OSError:
            return False
        return not left and digest.digest() == hashlib.blake2b(seen.content).digest()
