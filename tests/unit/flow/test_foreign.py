"""What a foreign record says of its error: category, code, root cause, and the group of its letter."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from redrive.collect.foreign import failure_of
from redrive.flow.foreign import read_foreign
from redrive.forensics.fingerprint import fingerprint
from redrive.model import Category
from tests.unit.forensics.test_stacks import deep, trace

TRANSIENT, NETWORK, RESOURCE = Category.TRANSIENT, Category.NETWORK, Category.RESOURCE
PERMISSION, VALIDATION, PERMANENT = Category.PERMISSION, Category.VALIDATION, Category.PERMANENT
NOW = datetime(2026, 1, 2, tzinfo=UTC)
SPRING = "org.springframework.kafka.listener.ListenerExecutionFailedException"


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("java-connect", NETWORK),
        ("java-thread", NETWORK),
        ("java-timeout", NETWORK),
        ("java-unknown-host", NETWORK),
        ("java-spring", NETWORK),
        ("java-access-denied", PERMISSION),
        ("java-number", VALIDATION),
        ("java-connect-worker", VALIDATION),
        ("java-bare", PERMANENT),
        ("java-multiline", PERMANENT),
        ("java-out-of-memory", RESOURCE),
        ("java-kotlin", TRANSIENT),
        ("node-refused", NETWORK),
        ("node-lookup", NETWORK),
        ("node-fetch", NETWORK),
        ("node-cause", VALIDATION),
        ("node-type", PERMANENT),
        ("dotnet-socket", NETWORK),
        ("dotnet-old", PERMISSION),
        ("dotnet-aggregate", VALIDATION),
        ("go-nil", PERMANENT),
        ("go-again", PERMANENT),
        ("go-wrapped", NETWORK),
        ("go-errors", NETWORK),
        ("python-cause", NETWORK),
        ("python-handling", NETWORK),
    ],
)
def test_a_trace_tells_the_category(name: str, category: Category) -> None:
    assert read_foreign("", "", trace(name)).category is category


TYPES = [
    ("java.net.SocketTimeoutException", NETWORK),
    ("java.net.ConnectException", NETWORK),
    ("org.apache.kafka.connect.errors.ConnectException", None),
    ("org.apache.kafka.connect.errors.RetriableException", TRANSIENT),
    ("org.springframework.security.access.AccessDeniedException", PERMISSION),
    ("org.springframework.kafka.support.serializer.DeserializationException", VALIDATION),
    ("org.apache.kafka.common.errors.SerializationException", VALIDATION),
    ("jakarta.validation.ConstraintViolationException", VALIDATION),
    ("org.springframework.web.bind.MethodArgumentNotValidException", VALIDATION),
    ("org.springframework.dao.DeadlockLoserDataAccessException", TRANSIENT),
    ("org.springframework.dao.OptimisticLockingFailureException", TRANSIENT),
    ("java.lang.OutOfMemoryError", RESOURCE),
    ("System.Net.Http.HttpRequestException", NETWORK),
    ("System.UnauthorizedAccessException", PERMISSION),
    ("System.Text.Json.JsonException", VALIDATION),
    ("MongoServerSelectionError", NETWORK),
    ("com.example.OrderNotFoundException", PERMANENT),
    ("com.example.OrderFailed", None),
]


@pytest.mark.parametrize(("kind", "category"), TYPES)
def test_a_type_alone_tells_the_category(kind: str, category: Category | None) -> None:
    assert read_foreign(kind, "").category is category


def caused(outer: str, cause: str) -> str:
    frames = "\tat com.example.shop.Bank.charge(Bank.java:31)\n\tat com.example.shop.Orders.on(Orders.java:18)\n"
    return f"{outer}\n{frames}Caused by: {cause}\n{frames}"


@pytest.mark.parametrize(
    ("outer", "cause", "category"),
    [
        ("shop.Failed: validation failed", "java.net.ConnectException: Connection refused", NETWORK),
        ("shop.SerializationException: no schema", "java.net.SocketTimeoutException: connect timed out", NETWORK),
        ("shop.DeserializationException: bad", "java.io.EOFException", VALIDATION),
        ("shop.DeserializationException: bad", "java.lang.NullPointerException", VALIDATION),
        ("shop.DeserializationException: bad", "java.io.IOException: Connection reset by peer", NETWORK),
        ("java.lang.RuntimeException: failed", "java.lang.IllegalStateException: Service unavailable", TRANSIENT),
        ("java.lang.RuntimeException: timed out", "java.lang.IllegalArgumentException: amount", VALIDATION),
        (
            "shop.Failed: x",
            "org.springframework.web.client.HttpServerErrorException: 503 Service Unavailable",
            TRANSIENT,
        ),
        ("shop.Failed: x", "shop.Odd: y", None),
    ],
)
def test_the_innermost_that_says_something_decides(outer: str, cause: str, category: Category | None) -> None:
    assert read_foreign("", "", caused(outer, cause)).category is category


def test_the_code_is_told() -> None:
    assert read_foreign("shop.Failed", "503 Service Unavailable").code == "503"
    assert failure_of("shop.Failed", "503 Service Unavailable", NOW).code == "503"
    assert failure_of("shop.Failed", "503 Service Unavailable", NOW, code="E17").code == "E17"


def test_a_record_that_nothing_explains_is_permanent() -> None:
    failure = failure_of("shop.Failed", "x", NOW)
    assert (failure.category, failure.retryable) == (PERMANENT, False)


def group(kind: str, text: str, stack: str) -> str:
    return fingerprint(failure_of(kind, text, NOW, stack=stack))


def at(*methods: str) -> str:
    return "".join(f"\tat com.example.shop.{method}(Orders.java:{line})\n" for line, method in enumerate(methods, 7))


def test_exceptions_without_a_message_from_two_methods_are_two_groups() -> None:
    kind = "java.lang.NullPointerException"
    first, second = (group(kind, "", f"{kind}\n{at(method)}") for method in ("Bank.charge", "Bank.refund"))
    assert first != second


def test_two_texts_of_one_throw_site_that_differ_in_a_name_are_one_group() -> None:
    kind = "com.example.shop.OrderFailed"
    stacks = [f"{kind}: cannot charge {name}\n{at('Bank.charge')}" for name in ("Ann Lee", "Bob", "the bank of Ü")]
    assert len({group(kind, stack.partition("\n")[0], stack) for stack in stacks}) == 1


def test_another_root_cause_at_the_same_place_is_another_group() -> None:
    stacks = [caused("shop.Failed: x", cause) for cause in ("java.net.ConnectException: a", "java.io.EOFException")]
    assert len({group("shop.Failed", "x", stack) for stack in stacks}) == 2


def test_another_kind_of_trouble_at_the_same_place_is_another_group() -> None:
    kind = "org.postgresql.util.PSQLException"
    texts = ("ERROR: deadlock detected", "ERROR: duplicate key value violates unique constraint")
    assert len({group(kind, text, f"{kind}: {text}\n{at('Bank.charge')}") for text in texts}) == 2


def test_without_a_throw_site_the_text_tells_groups_apart() -> None:
    refused = trace("node-refused")
    other = refused.replace("ECONNREFUSED", "EHOSTUNREACH")
    assert group("Error", refused.partition("\n")[0], refused) != group("Error", other.partition("\n")[0], other)
    assert group("E", "order 17 failed", "") == group("E", "order 18 failed", "")
    assert group("E", "order 17 failed", "") != group("E", "order 17 is odd", "")


def test_lines_and_builds_do_not_split_a_group() -> None:
    before = trace("java-spring")
    after = (
        before.replace(":27)", ":28)").replace(":31)", ":35)").replace("Accessor61", "Accessor9").replace("840", "842")
    )
    assert group(SPRING, "x", before) == group(SPRING, "x", after)


@pytest.mark.parametrize(("frames", "of_cause"), [(2000, 3), (3, 2000), (2000, 2000)])
def test_a_long_trace_has_the_category_of_its_root_cause_and_keeps_it(frames: int, of_cause: int) -> None:
    text = deep(frames, "java.net.SocketTimeoutException: Read timed out", of_cause)
    failure = failure_of("java.lang.RuntimeException", "outer", NOW, stack=text)
    assert failure.category is NETWORK
    assert len(failure.stack) <= 32_000
    assert "Caused by: java.net.SocketTimeoutException" in failure.stack
