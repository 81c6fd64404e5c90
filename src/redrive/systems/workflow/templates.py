"""Templates: what is done about a common failure, by name, and found by what the failure looks like."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from redrive.errors import ConfigError, UsageError, nearest
from redrive.model import Category, Failure
from redrive.policy import category_named
from redrive.systems.workflow.policies import AnyPolicy


class Template(Struct, frozen=True, kw_only=True):
    """A policy, a number of retries and metadata, and which failures they are for. What is given narrows."""

    name: str
    retry_policy: AnyPolicy | None = None
    max_retries: int | None = None
    metadata: Mapping[str, Any] = {}
    category: Category | str | None = None
    text: str | None = None  # a regular expression, looked for in the error, case aside
    error_type: str | None = None  # the exception's name, with its module or without
    task_type: str | None = None  # what the task has as "type"

    @property
    def is_automatic(self) -> bool:
        """Whether it says what it is for; otherwise it is used only by name."""
        return any(field is not None for field in (self.category, self.text, self.error_type, self.task_type))

    def fits(self, failure: Failure, task: Mapping[str, Any]) -> bool:
        names = (failure.type, failure.type.rpartition(".")[2])
        return (
            self.is_automatic
            and self.category in (None, failure.category)
            and (self.text is None or re.search(self.text, failure.message, re.IGNORECASE) is not None)
            and (self.error_type is None or self.error_type in names)
            and self.task_type in (None, task.get("type"))
        )


class Templates:
    """Those of one queue, in the order in which they were registered; the first that fits is used."""

    def __init__(self) -> None:
        self._templates: dict[str, Template] = {}

    def register(self, template: Template) -> None:
        if template.name in self._templates:
            raise ConfigError(f"there is a template {template.name!r} already")
        if template.category is not None:
            category_named(template.category)
        try:
            re.compile(template.text or "")
        except re.error as error:
            raise ConfigError(f"template {template.name!r}: {template.text!r} is no expression: {error}") from None
        self._templates[template.name] = template

    def find(self, name: str | None, failure: Failure, task: Mapping[str, Any]) -> Template | None:
        """The one of that name, or the first that fits."""
        if name is None:
            return next((template for template in self._templates.values() if template.fits(failure, task)), None)
        if name not in self._templates:
            raise UsageError(f"unknown template {name!r}{nearest(name, self._templates)}")
        return self._templates[name]
