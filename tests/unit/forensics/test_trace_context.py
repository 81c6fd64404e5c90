"""The trace that a message says it belongs to."""

from __future__ import annotations

import pytest

from redrive.forensics.trace_context import trace_id_of

ID = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("traceparent", f"00-{ID}-00f067aa0ba902b7-01", ID),
        ("TraceParent", f"cc-{ID}-00f067aa0ba902b7-01-what.comes.later", ID),
        ("traceparent", f"00-{'0' * 32}-00f067aa0ba902b7-01", None),
        ("traceparent", f"00-{ID[:-1]}-00f067aa0ba902b7-01", None),
        ("traceparent", "javascript:alert(1)", None),
        ("traceparent", "", None),
        ("tracestate", f"00-{ID}-00f067aa0ba902b7-01", None),
    ],
)
def test_a_trace_is_named_by_its_header(name: str, value: str, expected: str | None) -> None:
    assert trace_id_of([("x", b"\xff"), (name, value.encode())]) == expected
