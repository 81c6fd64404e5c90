"""The DLQ topic of a node. Every record on it is a DlqMessage, also where the stream is too large for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from redrive.errors import TransportUnavailable
from redrive.model import Letter
from redrive.systems.pipeline.dlq import UNREADABLE, about, dlq_message, stream_in
from redrive.systems.pipeline.error_types import ErrorType
from redrive.systems.pipeline.faults import error_type
from redrive.systems.pipeline.graph import Node
from redrive.systems.pipeline.pipeline_pb2 import DlqMessage, DocumentRef, PipeStream
from redrive.systems.pipeline.unwrap import is_of_a_dlq
from redrive.transports.base import ACCEPTED, SendResult, SendStatus
from redrive.transports.kafka.dlq import FORM, STUB, DeadLetterTopic, record_of
from redrive.transports.kafka.driver import NAME
from redrive.transports.kafka.writer import Parcel, Writer, result_of

IN_STORE = "redrive-letter/"
"""How the key of a `document_ref` begins whose document is in the letter of that id."""
KIND = (FORM, DlqMessage.DESCRIPTOR.full_name.encode())
"""The header of every DlqMessage that we write."""
_LONGEST_ERROR, _LONGEST_NAME = 1_000, 256  # characters, where nothing else fits
Value: TypeAlias = Callable[[Letter, Node], bytes]
log = logging.getLogger("redrive.pipeline")


class DlqTopic(DeadLetterTopic):
    """The topic as a place for the dead streams of one node.

    What is too large for it stands there without what our headers say; or with a reference instead of its document,
    which is in the letter; or with little more than its id, where its history is what is too large.
    """

    def __init__(self, writer: Writer, topic: str, node: Node) -> None:
        super().__init__(writer, topic, form=self._record)
        self._parcels = writer
        self._node = node

    async def bury(self, letters: Sequence[Letter]) -> Sequence[SendResult]:
        """What came from a DLQ and holds no stream is not put there again: somebody who copies the topic back to where
        streams come from would do so for ever. It is in the store."""
        new = [letter for letter in letters if not self._came_from_here(letter)]
        if len(new) < len(letters):
            log.warning("records that hold no stream came to node %s from a DLQ: see the store", self._node.id)
        answers = {id(letter): answer for letter, answer in zip(new, await super().bury(new), strict=True)}
        return [answers.get(id(letter), ACCEPTED) for letter in letters]

    async def refer(self, letters: Sequence[Letter]) -> None:
        left = list(letters)
        for value in (_whole, _with_reference, _shortest):
            left = await self._too_large(left, value)
            if not left:
                return
        log.warning("topic %r takes nothing of %d dead streams: they are in the store", self.topic, len(left))

    async def _too_large(self, letters: Sequence[Letter], value: Value) -> list[Letter]:
        """Publish them in that form. Returns those that are too large in it."""
        errors = await self._parcels.outcomes([self._stub(letter, value) for letter in letters])
        answers = [result_of(error) for error in errors]
        for answer in answers:
            if answer.status in (SendStatus.BUSY, SendStatus.UNKNOWN):
                raise TransportUnavailable(NAME, answer.why)
        return [letter for letter, answer in zip(letters, answers, strict=True) if answer.status is SendStatus.REFUSED]

    def _came_from_here(self, letter: Letter) -> bool:
        message = letter.message
        return error_type(letter) == ErrorType.MALFORMED and is_of_a_dlq(message.body, self._node.id, message.source)

    def _record(self, letter: Letter, topic: str) -> Parcel:
        value, has_stream = dlq_message(letter, self._node)
        parcel = record_of(letter, topic)
        original = [] if has_stream else [(UNREADABLE, letter.message.body)]
        return replace(parcel, value=value, headers=[*parcel.headers, KIND, *original])

    def _stub(self, letter: Letter, value: Value) -> Parcel:
        key = letter.message.key
        return Parcel(
            topic=self.topic,
            value=value(letter, self._node),
            key=key if key is None or len(key) <= _LONGEST_NAME else letter.id.encode(),
            headers=[(STUB, letter.id.encode()), KIND],
            at=letter.updated_at,
        )


def _whole(letter: Letter, node: Node) -> bytes:
    return dlq_message(letter, node)[0]


def _with_reference(letter: Letter, node: Node) -> bytes:
    message, stream = about(letter, node), stream_in(letter.message.body)
    if stream.HasField("document"):
        stream.document_ref.CopyFrom(_reference(letter, stream))
    if stream.stream_id:
        message.stream.CopyFrom(stream)
    return message.SerializeToString()


def _shortest(letter: Letter, node: Node) -> bytes:
    message, stream = about(letter, node), stream_in(letter.message.body)
    message.error_message = message.error_message[:_LONGEST_ERROR]
    if stream.stream_id:
        message.stream.stream_id = stream.stream_id[:_LONGEST_NAME]
        message.stream.hop_count = stream.hop_count
        message.stream.document_ref.key = f"{IN_STORE}{letter.id}"
    return message.SerializeToString()


def _reference(letter: Letter, stream: PipeStream) -> DocumentRef:
    """Where its document is: in the letter."""
    document = stream.document
    made = DocumentRef(
        document_id=document.document_id,
        key=f"{IN_STORE}{letter.id}",
        content_type=document.content_type,
        size=len(document.content),
    )
    made.metadata.update(document.metadata)
    return made
