"""Traces (OpenTelemetry): one trace from the send through every retry and replay, to the success.

The W3C trace context travels in the message's own headers. A letter keeps them, so what is replayed a week later
still belongs to the trace in which it was sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from traceback import format_exception

from redrive.app import Redrive
from redrive.errors import MissingExtra
from redrive.flow.attempt import text_of, type_name
from redrive.flow.lineage import lineage
from redrive.forensics.redact import Redactor
from redrive.model import Message

try:
    from opentelemetry.context import Context
    from opentelemetry.trace import (
        Link,
        Span,
        SpanKind,
        Status,
        StatusCode,
        Tracer,
        TracerProvider,
        get_current_span,
        get_tracer,
    )
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise MissingExtra("tracing", "tracing") from error

_CARRIER = TraceContextTextMapPropagator()
_PARENT = "traceparent"


def trace(app: Redrive, tracer_provider: TracerProvider | None = None) -> None:
    """Make messages carry their trace from now on, and each attempt a span in it. Without a provider it is
    OpenTelemetry's global one."""
    tracer = get_tracer("redrive", tracer_provider=tracer_provider)
    spans = _Spans(tracer, Redactor.of(app.settings.redact))
    app.inject = carried
    app.span = spans.attempt
    app.batch_span = spans.batch


def carried(headers: Mapping[str, str | bytes]) -> Mapping[str, str | bytes]:
    """The headers with the current trace added, unless the sender has set one."""
    if any(name.lower() == _PARENT for name in headers):
        return headers
    ours: dict[str, str] = {}
    _CARRIER.inject(ours)
    return {**ours, **headers}


class _Spans:
    """Spans around attempts. What is said of an error is redacted, as everywhere it is shown."""

    def __init__(self, tracer: Tracer, redactor: Redactor) -> None:
        self._tracer = tracer
        self._redactor = redactor

    @contextmanager
    def attempt(self, message: Message) -> Iterator[None]:
        """A CONSUMER span that continues the message's own trace."""
        with self._tracer.start_as_current_span(
            f"process {message.source}",
            context=_CARRIER.extract(_context_headers(message)),
            kind=SpanKind.CONSUMER,
            attributes=self._masked(_attributes(message)),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:  # a timeout reaches us as a cancellation
                self._failed(span, error)
                raise

    @contextmanager
    def batch(self, messages: Sequence[Message]) -> Iterator[None]:
        """A CONSUMER span of one call of a batch handler. It belongs to no trace of its messages: it links to each."""
        contexts = (get_current_span(_CARRIER.extract(_context_headers(message))) for message in messages)
        links = [Link(span.get_span_context()) for span in contexts if span.get_span_context().is_valid]
        with self._tracer.start_as_current_span(
            f"process {messages[0].source}",
            context=Context(),
            kind=SpanKind.CONSUMER,
            attributes=self._masked(_batch_attributes(messages)),
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                self._failed(span, error)
                raise

    def _masked(self, attributes: dict[str, str | int]) -> dict[str, str | int]:
        text = self._redactor.text
        return {name: text(value) if isinstance(value, str) else value for name, value in attributes.items()}

    def _failed(self, span: Span, error: BaseException) -> None:
        text = self._redactor.text(text_of(error))
        stack = self._redactor.text("".join(format_exception(error)))
        span.set_attribute("error.type", type_name(error))
        span.set_status(Status(StatusCode.ERROR, text))
        span.add_event(
            "exception",
            {"exception.type": type_name(error), "exception.message": text, "exception.stacktrace": stack},
        )


def _context_headers(message: Message) -> dict[str, str]:
    """The trace headers of a message, as texts. Without any, the attempt starts a trace of its own."""
    found = ((name.lower(), value) for name, value in message.headers)
    return {name: value.decode("ascii", "replace") for name, value in found if name in (_PARENT, "tracestate")}


def _batch_attributes(messages: Sequence[Message]) -> dict[str, str | int]:
    return {
        "messaging.system": "redrive",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": messages[0].source,
        "messaging.batch.message_count": len(messages),
    }


def _attributes(message: Message) -> dict[str, str | int]:
    """The attributes of a span: of the messaging semantic conventions, and ours under `redrive.`"""
    origin = lineage(message)
    found: dict[str, str | int | None] = {
        "messaging.system": "redrive",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": message.source,
        "messaging.message.id": message.id,
        "messaging.message.body.size": len(message.body),
        "messaging.message.conversation_id": message.correlation_id,
        "redrive.attempt": message.attempt,
        "redrive.tenant": message.tenant,
        "redrive.letter": origin.letter if origin else None,
        "redrive.replay": origin.replay if origin else None,
    }
    return {name: value for name, value in found.items() if value is not None}
