"""What `redrive doctor` says of Celery: what its workers noted of themselves, and whether a replay finds its way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from redrive.doctor.findings import Finding, fine, warning
from redrive.integrations.celery.notes import KIND, Note, read_note
from redrive.integrations.checking import asked_of_store

if TYPE_CHECKING:
    from redrive.app import Redrive


async def examine(app: Redrive) -> list[Finding]:
    """Findings for each app of Celery that has told this store of itself."""
    documents = await asked_of_store(app, lambda store: store.documents.list(KIND))
    notes = [read_note(document.body) for document in documents or ()]
    return [finding for note in notes if note for finding in _findings(note, app.transport_names)]


def _findings(note: Note, transports: list[str]) -> Iterator[Finding]:
    about = f"celery {note.app}"
    yield fine(about, f"{note.tasks} tasks, broker {note.broker}, last seen {note.at} at {note.worker}")
    if note.transport not in transports:
        yield warning(about, "its letters cannot be replayed from here", way_to(note.transport, note.broker))
    yield from _of_lost_workers(about, note)
    if note.broker.startswith(("redis", "sentinel")):
        yield from _of_redis(about, note)


def way_to(name: str, broker: str) -> str:
    """What to write so that replays find that broker."""
    scheme, _, rest = broker.partition("://")
    scheme = {"pyamqp": "amqp", "librabbitmq": "amqp"}.get(scheme, scheme)
    return (
        f'write {name} = "celery+{scheme}://USER:PASSWORD@{rest}" into [transports] of redrive.toml, '
        f"or set REDRIVE_TRANSPORTS_{name.upper().replace('-', '_')}"
    )


def _of_lost_workers(about: str, note: Note) -> Iterator[Finding]:
    if note.acked_early.count:
        yield warning(
            about,
            f"{note.acked_early}: acknowledged before they run: a worker that is killed loses what it runs",
            "set task_acks_late = True if they can be run twice, and task_reject_on_worker_lost = False, so that a "
            "task that kills its worker becomes a letter",
        )
    if note.requeued_when_lost.count:
        yield warning(
            about,
            f"{note.requeued_when_lost}: task_reject_on_worker_lost lets a task that kills its worker kill "
            "the next one, for ever",
            "set task_reject_on_worker_lost = False, so that it becomes a letter; or quorum queues with a limit",
        )


def _of_redis(about: str, note: Note) -> Iterator[Finding]:
    timeout, longest = note.visibility_timeout, note.longest_limit
    if longest and longest >= timeout:
        yield warning(
            about,
            f"a task may run for {longest:g} s, and after the visibility timeout of {timeout:g} s Redis gives it to "
            "another worker as well",
            f"set broker_transport_options = {{'visibility_timeout': {int(longest * 2)}}}, or a shorter time_limit",
        )
    if note.without_limit.count:
        yield warning(
            about,
            f"{note.without_limit}: no time limit, and what runs longer than the visibility timeout of "
            f"{timeout:g} s runs twice",
            "set task_time_limit to less than the visibility timeout",
        )
