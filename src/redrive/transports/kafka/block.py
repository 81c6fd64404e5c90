"""Records that are handed to a batch handler as they came, without a Message and a Delivery for each."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.transports.base import Block, Delivery
from redrive.transports.kafka.shelf import Record, Shelf


def are_plain(records: Sequence[Record]) -> bool:
    """Whether all of them are as the driver gave them: never tried, and without headers."""
    return not [record for record in records if record.raw is None]


class RecordBlock(Block):
    """Records of one shelf, each leased to us by its turn."""

    def __init__(self, shelf: Shelf, leased: list[tuple[int, list[Record]]]) -> None:
        self.shelf = shelf
        self._leased = leased
        self._size = sum([len(records) for _, records in leased])

    @classmethod
    def of(cls, shelf: Shelf, records: list[Record]) -> RecordBlock:
        """The records that one take has leased."""
        return cls(shelf, [(records[0].turn, records)])

    def __len__(self) -> int:
        return self._size

    def bodies(self) -> list[bytes]:
        return [record.raw.value() for _, records in self._leased for record in records]

    def deliveries(self) -> list[Delivery]:
        return [delivery for turn, records in self._leased for delivery in self.shelf.deliveries(records, turn)]

    def is_ours(self) -> bool:
        return not any(self._lost(turn, records) for turn, records in self._leased)

    def finish(self) -> list[Delivery]:
        """All of it is done. Returns what was taken from us, or held for too long."""
        gone: list[Delivery] = []
        for turn, records in self._leased:
            if lost := self._lost(turn, records):
                gone += self.shelf.deliveries(lost, turn)
                names = set(map(id, lost))
                records = [record for record in records if id(record) not in names]
            self.shelf.finish(records)
        return gone

    def _lost(self, turn: int, records: list[Record]) -> list[Record]:
        return [record for record in records if record.turn != turn or not record.partition.alive]

    def join(self, other: Block) -> None:
        assert isinstance(other, RecordBlock)
        self._leased = self._leased + other._leased
        self._size += len(other)

    def split(self, number: int) -> RecordBlock:
        kept, rest = list[tuple[int, list[Record]]](), list[tuple[int, list[Record]]]()
        for turn, records in self._leased:
            kept += [(turn, records[:number])] if number > 0 else []
            rest += [(turn, records[max(number, 0) :])] if len(records) > number else []
            number -= len(records)
        self._leased = kept
        self._size -= (other := RecordBlock(self.shelf, rest))._size
        return other
