"""Whatever a stranger wrote as type, message or stack trace is read, cut and grouped."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from redrive.collect.foreign import failure_of
from redrive.flow.classify import RETRYABLE
from redrive.forensics.fingerprint import fingerprint
from redrive.forensics.stacks import cut_stack, read_stack
from tests.unit.forensics.test_stacks import TRACES

NOW = datetime(2026, 1, 2, tzinfo=UTC)
lines = sorted({line for path in TRACES.glob("*.txt") for line in path.read_text().splitlines(keepends=True)})
marks = st.sampled_from(
    [
        "Caused by: ",
        "---> ",
        "[cause]: ",
        "[errors]: [",
        "... 99 more\n",
        "at ",
        "goroutine 1 [running]:\n",
        "\0",
        "\ud800",
    ]
)
traces = st.lists(st.sampled_from(lines) | marks | st.text(max_size=20), max_size=40).map("".join)


@given(st.text(max_size=50) | st.sampled_from(["java.net.ConnectException", ""]), traces, traces)
def test_every_foreign_error_becomes_a_failure_with_a_group(kind: str, text: str, stack: str) -> None:
    failure = failure_of(kind, text, NOW, stack=stack)
    assert failure.retryable is (failure.category in RETRYABLE)
    assert len(fingerprint(failure)) == 12
    assert fingerprint(failure) == fingerprint(failure_of(kind, text, NOW, stack=stack))


@given(traces, st.integers(0, 2000))
def test_a_cut_trace_is_within_its_limit(stack: str, limit: int) -> None:
    assert len(cut_stack(stack, limit)) <= limit
    assert cut_stack(stack, len(stack)) == stack


@given(traces)
def test_every_exception_of_a_trace_has_a_place_in_it(stack: str) -> None:
    found = read_stack(stack)
    assert found is None or (len(found.chain) >= 1 and len(found.site()) <= 3)
