"""Messages that are handed to a batch handler without a Delivery for each, and acknowledged together."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.errors import TransportUnavailable
from redrive.transports.base import Block, Delivery
from redrive.transports.rabbitmq.redelivery import Redelivery
from redrive.transports.rabbitmq.subscription import Taken, delivery_of


def are_plain(leased: Sequence[Taken]) -> bool:
    """Whether none of them was delivered or tried before, and none has headers, which may not even be readable, or a
    time to live."""
    return all(_is_plain(taken) for taken in leased)


def _is_plain(taken: Taken) -> bool:
    came = taken.came
    message = came.message
    return not (
        message.headers
        or taken.state is not Redelivery.FRESH
        or message.attempt > 1
        or message.expires_at
        or came.failures
        or came.unreadable
    )


class TakenBlock(Block):
    """Messages of one subscription, all leased to us."""

    def __init__(self, leased: list[Taken]) -> None:
        self._leased = leased

    def __len__(self) -> int:
        return len(self._leased)

    def bodies(self) -> list[bytes]:
        return [taken.came.message.body for taken in self._leased]

    def deliveries(self) -> list[Delivery]:
        return [delivery_of(taken) for taken in self._leased]

    def is_ours(self) -> bool:
        return not self._lost()

    def ack(self) -> list[Delivery]:
        """All of it is done. Returns what was lost: where the channel ended, it comes back by itself."""
        lost = self._lost()
        gone = set(map(id, lost))
        try:
            for subscription in {id(taken.subscription): taken.subscription for taken in self._leased}.values():
                subscription.ack(
                    [
                        taken.tag
                        for taken in self._leased
                        if taken.subscription is subscription and (not gone or id(taken) not in gone)
                    ]
                )
        except TransportUnavailable:
            lost = self._leased
        return [delivery_of(taken) for taken in lost]

    def _lost(self) -> list[Taken]:
        return [taken for taken in self._leased if not taken.subscription.holds(taken.tag)]

    def join(self, other: Block) -> None:
        assert isinstance(other, TakenBlock)
        self._leased = self._leased + other._leased

    def split(self, number: int) -> TakenBlock:
        rest = TakenBlock(self._leased[number:])
        self._leased = self._leased[:number]
        return rest
