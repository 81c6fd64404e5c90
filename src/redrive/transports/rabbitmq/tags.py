"""The delivery tags of a channel: which are settled, and the fewest acks that say so. Pure: it sends nothing."""

from __future__ import annotations

from collections.abc import Collection


class Tags:
    """A channel's tags, which count up by one from 1."""

    def __init__(self) -> None:
        self._first = 1  # all below are settled
        self._settled: set[int] = set()  # and so are these above it

    def is_open(self, tag: int) -> bool:
        return tag >= self._first and tag not in self._settled

    def settle(self, tag: int) -> None:
        self._settled.add(tag)
        self._advance()

    def acks(self, tags: Collection[int]) -> list[tuple[int, bool]]:
        """Settle those that are open, and say how: tag, and whether it stands for all below it. One ack for everything
        that is finished without a gap, one for each of the others.

        The last tag of the first ack is one of these: RabbitMQ takes an ack of what was settled before for an error.
        """
        first = self._first
        settled = self._settled
        mine = [tag for tag in dict.fromkeys(tags) if tag >= first and tag not in settled]
        settled.update(mine)
        self._advance()
        last = max([tag for tag in mine if tag < self._first], default=0)
        acks = [(last, last > first)] if last else []
        return acks + [(tag, False) for tag in mine if tag > last]

    def _advance(self) -> None:
        while self._first in self._settled:
            self._settled.discard(self._first)
            self._first += 1
