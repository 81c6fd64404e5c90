"""A task of Taskiq as bytes: how it says that it was sent back, whatever its serializer is.

Labels are how Taskiq carries what is no argument, and its retries keep them. JSON and MessagePack are given labels
without reading their arguments. What another serializer has made (pickle, CBOR, your own) is not read at all: it
travels behind a few bytes of ours, which the middleware takes off before Taskiq sees it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

import msgspec
from msgspec import Raw

from redrive.flow.lineage import BY_HAND, LETTER, REPLAY, RETRIES
from redrive.model import Message
from redrive.untrusted import UNREADABLE

ATTEMPTS = "redrive-attempts"
"""The label with the failures of earlier attempts."""
ID = "redrive-id"
"""The label with the id of the letter's message: of what could not be read, Redrive gave it one."""
LINEAGE = (LETTER, REPLAY, RETRIES, BY_HAND)
OURS = (*LINEAGE, ATTEMPTS, ID)
COUNT = "_retries"
"""Taskiq's own label: how often its middleware has retried."""
_MAGIC = b"\x00redrive\x01"
_SIZE = 4
_TYPES = "labels_types"  # what each label was before it became a text


def with_labels(body: bytes, labels: Mapping[str, str]) -> bytes:
    """The same task with these labels too."""
    for codec in (msgspec.json, msgspec.msgpack):
        changed = _changed(codec, body, labels, ())
        if changed is not None:
            return changed
    said = msgspec.json.encode(labels)
    return b"".join((_MAGIC, len(said).to_bytes(_SIZE, "big"), said, body))


def without_labels(body: bytes, *names: str) -> bytes | None:
    """The same task without these labels; None if its serializer is not known here."""
    for codec in (msgspec.json, msgspec.msgpack):
        changed = _changed(codec, body, {}, names)
        if changed is not None:
            return changed
    return None


def taken_apart(data: bytes) -> tuple[bytes, dict[str, str]]:
    """What Taskiq is to read, and the labels that travelled before it."""
    if not data.startswith(_MAGIC):
        return data, {}
    start = len(_MAGIC) + _SIZE
    end = start + int.from_bytes(data[len(_MAGIC) : start], "big")
    try:
        return data[end:], msgspec.json.decode(data[start:end], type=dict[str, str])
    except UNREADABLE:
        return data, {}


def lineage_labels(message: Message) -> dict[str, str]:
    """What a message that is sent back says of its letter, as labels."""
    found = {name: value.decode("ascii", "replace") for name, value in message.headers if name in LINEAGE}
    return {**found, ID: message.id}


def labels_in(body: bytes) -> dict[str, object]:
    """The labels of a task in JSON or MessagePack; none, if it is neither."""
    for codec in (msgspec.json, msgspec.msgpack):
        try:
            found: dict[str, object] = codec.decode(
                codec.decode(body, type=dict[str, Raw])["labels"], type=dict[str, object]
            )
        except (*UNREADABLE, KeyError):
            continue
        return found
    return {}


def _changed(codec: ModuleType, body: bytes, more: Mapping[str, str], less: tuple[str, ...]) -> bytes | None:
    """The task with other labels, if it can be read by that codec; the arguments are the bytes that they were."""
    try:
        task: dict[str, Raw] = codec.decode(body, type=dict[str, Raw])
        labels: dict[str, Raw] = codec.decode(task["labels"], type=dict[str, Raw])
        types: dict[str, Raw] | None = codec.decode(task.get(_TYPES, codec.encode(None)), type=dict[str, Raw] | None)
    except (*UNREADABLE, KeyError):
        return None
    added = {name: Raw(codec.encode(value)) for name, value in more.items()}
    task["labels"] = Raw(codec.encode({**_without(labels, less), **added}))
    if types is not None:
        task[_TYPES] = Raw(codec.encode(_without(types, less)))
    changed: bytes = codec.encode(task)
    return changed


def _without(values: Mapping[str, Raw], names: tuple[str, ...]) -> dict[str, Raw]:
    return {name: value for name, value in values.items() if name not in names}
