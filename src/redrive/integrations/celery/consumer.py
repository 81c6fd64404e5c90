"""What a worker's consumer receives and can make no task of becomes a letter before it is rejected.

A bootstep, Celery's own way to extend a consumer, sets these on the consumer of a worker as it is made:

    on_unknown_message   neither protocol of Celery        on_decode_error   the body cannot be decoded
    on_unknown_task      no task of that name here         on_invalid_task   its content is not allowed or senseless
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from celery import bootsteps
from celery.exceptions import NotRegistered

from redrive.integrations.celery.request import request_class
from redrive.model import Reason

if TYPE_CHECKING:
    from redrive.integrations.celery.app import RedriveCelery, Watch

_POISON = (TypeError, ValueError, LookupError, AttributeError, RecursionError)
"""What a message can make Celery raise that is of neither protocol: it would end the worker, and the next one."""


class UnknownMessage(Exception):
    """A message that is no task."""

    def __str__(self) -> str:
        return "it is no message of Celery: its headers name no task, and neither does its body"


def step_for(integration: RedriveCelery) -> type[Any]:
    """The bootstep that watches the consumer of a worker."""

    class RedriveStep(bootsteps.StartStopStep):  # type: ignore[misc]
        name = "redrive"

        def __init__(self, consumer: Any, **options: Any) -> None:
            super().__init__(consumer, **options)
            watch_consumer(consumer, integration.started(consumer))

    return RedriveStep


def watch_consumer(consumer: Any, watch: Watch) -> None:
    """Let that consumer tell what it cannot use, and make requests that tell what becomes of them."""
    consumer.on_unknown_message = _first(watch, consumer.on_unknown_message, _unknown_message)
    consumer.on_unknown_task = _first(watch, consumer.on_unknown_task, _unknown_task)
    consumer.on_invalid_task = _first(watch, consumer.on_invalid_task, _invalid_task)
    consumer.on_decode_error = _first(watch, consumer.on_decode_error, _decode_error)
    consumer.update_strategies = _equipping(watch, consumer.update_strategies, consumer.app)
    consumer.create_task_handler = _guarding(consumer, consumer.create_task_handler)


def equip(watch: Watch, tasks: Any) -> None:
    """Let each task make requests that are watched, and carry its attempts from retry to retry."""
    for task in list(tasks.values()):
        from celery.utils.imports import symbol_by_name

        task.Request = request_class(watch, symbol_by_name(task.Request))
        watch.keep_attempts(task)


def _equipping(watch: Watch, update_strategies: Callable[[], None], app: Any) -> Callable[[], None]:
    def update() -> None:
        equip(watch, app.tasks)
        update_strategies()

    return update


def _guarding(consumer: Any, create: Callable[..., Any]) -> Callable[..., Any]:
    """A message that is of no protocol is invalid, and does not end its worker."""

    def create_guarded(*args: Any, **options: Any) -> Callable[[Any], Any]:
        receive = create(*args, **options)

        def on_task_received(message: Any) -> Any:
            try:
                return receive(message)
            except _POISON as error:
                if message.acknowledged:
                    raise
                return consumer.on_invalid_task(None, message, error)

        return on_task_received

    return create_guarded


def _first(watch: Watch, then: Callable[..., Any], told: Callable[..., tuple[Any, BaseException, Reason]]) -> Any:
    """The letter is on disk before Celery rejects the message; if it cannot be, the message goes back to its queue."""

    def hook(*args: Any, **options: Any) -> Any:
        message, error, reason = told(*args, **options)
        if watch.unusable(message, error, reason):
            return then(*args, **options)
        return watch.give_back(message)

    return hook


def _unknown_message(body: Any, message: Any) -> tuple[Any, BaseException, Reason]:
    return message, UnknownMessage(), Reason.UNDECODABLE


def _unknown_task(body: Any, message: Any, exc: Any) -> tuple[Any, BaseException, Reason]:
    name = exc.args[0] if isinstance(exc, KeyError) and exc.args else exc
    return message, NotRegistered(name), Reason.PERMANENT


def _invalid_task(body: Any, message: Any, exc: Any) -> tuple[Any, BaseException, Reason]:
    return message, exc, Reason.UNDECODABLE


def _decode_error(message: Any, exc: Any) -> tuple[Any, BaseException, Reason]:
    return message, exc, Reason.UNDECODABLE
