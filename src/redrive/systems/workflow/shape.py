"""How a task looks as a document of OpenSearch: the document's fifteen fields, and Redrive's own under `redrive`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from redrive.model import Letter
from redrive.stores.shape import Document, DocumentShape
from redrive.systems.workflow.policies import DeadLetterStatus
from redrive.systems.workflow.task import FailedTask, policy_of
from redrive.untrusted import UNREADABLE

INDEX = "mahavishnu_dlq"
_KEYWORD: Document = {
    "type": "keyword",
    "ignore_above": 8000,
    "fields": {"keyword": {"type": "keyword", "ignore_above": 8000}},
}
_TASK: Document = {"type": "object", "enabled": False}  # kept as it is: two tasks may have one name for two types
_METADATA: Document = {"type": "object", "dynamic": True}  # searched by whatever people put in
_STRINGS: Document = {"match_mapping_type": "string", "path_match": "metadata.*", "mapping": _KEYWORD}
_TYPES: Document = {
    "task_id": _KEYWORD,
    "task": _TASK,
    "repos": _KEYWORD,
    "error": {"type": "text"},
    "failed_at": {"type": "date"},
    "retry_count": {"type": "integer"},
    "max_retries": {"type": "integer"},
    "retry_policy": _KEYWORD,
    "next_retry_at": {"type": "date"},
    "status": _KEYWORD,
    "metadata": _METADATA,
    "error_category": _KEYWORD,
    "last_error": {"type": "text"},
    "total_attempts": {"type": "integer"},
    "updated_at": {"type": "date"},
}


class WorkflowShape(DocumentShape):
    """`status.keyword` and plain `status` answer alike, as the document's queries want it."""

    name = "workflow"
    mapping = _TYPES
    mapping_options: ClassVar[Document] = {"date_detection": False, "dynamic_templates": [{"metadata": _STRINGS}]}

    def dump(self, letter: Letter) -> Document:
        ours: Document = msgspec.to_builtins(letter)
        shown = self._shown(letter)
        if msgspec.json.encode({"task": shown["task"], "repos": shown["repos"]}) == letter.message.body:
            del ours["message"]["body"]  # `task` and `repos` say it, to the byte
        return {**shown, "redrive": ours}

    @property
    def simpler(self) -> tuple[Callable[[Letter], Document], ...]:
        """For an index that will not have a task as it is, because some field of its own is of another type."""
        return self._without_details, self._ours_alone

    def _without_details(self, letter: Letter) -> Document:
        """Task and metadata cannot be searched then."""
        return {**self._shown(letter), "task": {}, "metadata": {}, "redrive": msgspec.to_builtins(letter)}

    def _ours_alone(self, letter: Letter) -> Document:
        return {"redrive": msgspec.to_builtins(letter)}

    def load(self, document: Document) -> Letter:
        ours = document["redrive"]
        if "body" not in ours["message"]:
            body = msgspec.json.encode({"task": document["task"], "repos": document["repos"]})
            ours = {**ours, "message": {**ours["message"], "body": body}}
        return msgspec.convert(ours, Letter)

    def _shown(self, letter: Letter) -> Document:
        try:
            return FailedTask(letter).to_dict()
        except (*UNREADABLE, TypeError, KeyError, AttributeError):
            return _of_a_stranger(letter)


def _of_a_stranger(letter: Letter) -> Document:
    """A letter that no workflow made: a store keeps what it is given."""
    fields: dict[str, Any] = {
        "task_id": letter.message.id,
        "task": {},
        "repos": [],
        "error": letter.failures[0].message,
        "failed_at": letter.failures[0].at,
        "retry_count": letter.retries,
        "max_retries": letter.max_retries,
        "retry_policy": policy_of(letter),
        "next_retry_at": letter.next_retry_at,
        "status": DeadLetterStatus.of(letter.state),
        "metadata": {},
        "error_category": letter.category,
        "last_error": letter.last.message,
        "total_attempts": len(letter.failures),
        "updated_at": letter.updated_at,
    }
    shown: Document = msgspec.to_builtins(fields)
    return shown


WORKFLOW = WorkflowShape()
