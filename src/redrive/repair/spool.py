"""What a dry run found, in a file: ten thousand new bodies need no memory while somebody looks at three of them."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from types import TracebackType

import msgspec
from msgspec import Struct

from redrive.model import Headers, LetterId

_LENGTH = struct.Struct(">Q")


class Proposal(Struct, frozen=True):
    """A letter in the version that the script saw, and what it made of its message."""

    letter: LetterId
    version: int
    body: bytes
    headers: Headers


class Spool:
    """Proposals in the order they were found. The file has no name, and is gone with this process."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="redrive-repair-")  # noqa: SIM115 - closed by __exit__
        self.count = 0

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, proposal: Proposal) -> None:
        data = msgspec.msgpack.encode(proposal)
        self._file.write(_LENGTH.pack(len(data)) + data)
        self.count += 1

    def batches(self, size: int, most_bytes: int = 8 << 20) -> Iterator[list[Proposal]]:
        """The proposals, some at a time."""
        self._file.seek(0)
        batch: list[Proposal] = []
        held = 0
        while length := self._file.read(_LENGTH.size):
            data = self._file.read(_LENGTH.unpack(length)[0])
            batch.append(msgspec.msgpack.decode(data, type=Proposal))
            held += len(data)
            if len(batch) >= size or held >= most_bytes:
                yield batch
                batch, held = [], 0
        if batch:
            yield batch
