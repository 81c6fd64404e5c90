"""From a failed execution to the letter that is kept of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from redrive.errors import UsageError
from redrive.flow.attempt import failure
from redrive.flow.bury import letter_of
from redrive.flow.classify import RETRYABLE
from redrive.flow.context import Context
from redrive.model import Category, Failure, Letter, Message, Reason
from redrive.policy import category_named
from redrive.systems.workflow.calls import as_error
from redrive.systems.workflow.policies import AnyPolicy, Policies
from redrive.systems.workflow.settings import bounded
from redrive.systems.workflow.task import TRANSPORT, message_of
from redrive.systems.workflow.templates import Template, Templates
from redrive.transports.base import Delivery


class Execution(Struct, frozen=True, kw_only=True):
    """One that failed, and what its caller wants done about it."""

    task_id: str
    task: Mapping[str, Any]
    repos: Iterable[str | PurePath]
    error: str | BaseException
    retry_policy: AnyPolicy | None = None
    max_retries: int | None = None
    metadata: Mapping[str, Any] | None = None
    error_category: Category | str | None = None
    after: tuple[str, ...] = ()
    template: str | None = None

    def filled_by(self, template: Template) -> Execution:
        """What its caller left open is as the template says."""
        return replace(
            self,
            retry_policy=template.retry_policy if self.retry_policy is None else self.retry_policy,
            max_retries=template.max_retries if self.max_retries is None else self.max_retries,
            metadata={**template.metadata, "template": template.name, **(self.metadata or {})},
        )


class Enqueuer:
    """Builds letters as the core does for a message that is buried; their retries are as the task's policy says."""

    def __init__(self, context: Context, policies: Policies, templates: Templates, max_retries: int) -> None:
        self._context = context
        self._policies = policies
        self._templates = templates
        self._max_retries = max_retries

    def letter(self, execution: Execution, known: Letter | None) -> Letter:
        failed = self._failure(execution, 1 if known is None else len(known.failures) + 1)
        task = execution.task if isinstance(execution.task, Mapping) else {}
        template = self._templates.find(execution.template, failed, task)
        given = execution if template is None else execution.filled_by(template)
        name = self._policies.default if given.retry_policy is None else self._policies.name_of(given.retry_policy)
        retries = self._max_retries if given.max_retries is None else retries_of(given.max_retries)
        return letter_of(
            Delivery(_message(given, name, failed), None),
            failed,
            Reason.ATTEMPTS if failed.retryable else Reason.PERMANENT,
            self._policies.policy(name, retries),
            transport=TRANSPORT,
            now=failed.at,
            rng=self._context.clock.rng,
        )

    def _failure(self, execution: Execution, attempt: int) -> Failure:
        """What went wrong; its category as the caller says, if he does. A text was raised nowhere: it has no stack."""
        now, error = self._context.clock.now(), execution.error
        message = Message(id=execution.task_id, source="", body=b"", enqueued_at=now, attempt=attempt)
        found = failure(self._context, message, as_error(error))
        given = execution.error_category
        category = found.category if given is None else category_named(given)
        stack = found.stack if isinstance(error, BaseException) else ""
        return replace(found, at=now, category=category, retryable=category in RETRYABLE, stack=stack)


def _message(given: Execution, policy: str, failed: Failure) -> Message:
    return message_of(
        given.task_id, given.task, given.repos, policy, given.metadata, given.after, failed.at, failed.attempt
    )


def retries_of(number: Any) -> int:
    """That many retries, within the bounds of the document."""
    return int(bounded("max_retries", "dlq_default_max_retries", number, UsageError))
