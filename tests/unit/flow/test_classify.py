"""What a user would expect of each error, by type, by code, by words and by what caused it."""

from __future__ import annotations

import asyncio
import errno
import smtplib
import socket
import ssl
import urllib.error
from email.message import Message as EmailMessage
from enum import Enum
from typing import Any

import httpx
import msgspec
import pydantic
import pytest

from redrive.errors import Permanent, StoreUnavailable, Transient, UnknownSource
from redrive.flow.classify import RETRYABLE, Classifier, Rule, Verdict, classify_code, classify_text
from redrive.model import Category

TRANSIENT, NETWORK, RESOURCE = Category.TRANSIENT, Category.NETWORK, Category.RESOURCE
PERMISSION, VALIDATION, PERMANENT = Category.PERMISSION, Category.VALIDATION, Category.PERMANENT


class Odd(Exception):
    """An error that says nothing by its type or its name."""


def with_attributes(error: BaseException, **attributes: object) -> BaseException:
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


def caught(raising: Any) -> BaseException:
    try:
        raising()
    except BaseException as error:
        return error
    raise AssertionError("it should have raised")


class Order(pydantic.BaseModel):
    amount: int


BY_TYPE: list[tuple[BaseException, Category]] = [
    (TimeoutError("slow"), NETWORK),
    (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), NETWORK),
    (socket.gaierror(-2, "Name or service not known"), NETWORK),
    (ssl.SSLError(1, "handshake"), NETWORK),
    (ssl.SSLCertVerificationError("self-signed"), NETWORK),
    (asyncio.IncompleteReadError(b"", 3), NETWORK),
    (OSError(errno.EHOSTUNREACH, "x"), NETWORK),
    (StoreUnavailable("sqlite"), NETWORK),
    (MemoryError(), RESOURCE),
    (OSError(errno.ENOSPC, "x"), RESOURCE),
    (OSError(errno.EDQUOT, "x"), RESOURCE),
    (OSError(errno.EMFILE, "x"), RESOURCE),
    (OSError(errno.ENFILE, "x"), RESOURCE),
    (OSError(errno.ENOMEM, "x"), RESOURCE),
    (PermissionError(errno.EACCES, "x"), PERMISSION),
    (msgspec.ValidationError("Expected `int`"), VALIDATION),
    (msgspec.DecodeError("truncated"), VALIDATION),
    (caught(lambda: Order(amount="many")), VALIDATION),  # type: ignore[arg-type]
    (caught(lambda: b"\xff".decode()), VALIDATION),
    (ValueError("x"), VALIDATION),
    (KeyError("x"), VALIDATION),
    (IndexError("x"), VALIDATION),
    (TypeError("x"), PERMANENT),
    (AttributeError("x"), PERMANENT),
    (NameError("x"), PERMANENT),
    (NotImplementedError("x"), PERMANENT),
    (ModuleNotFoundError("x"), PERMANENT),
    (SyntaxError("x"), PERMANENT),
    (RecursionError("x"), PERMANENT),
    (SystemExit(1), PERMANENT),
    (UnknownSource("x", ["y"]), PERMANENT),
    (BlockingIOError(errno.EAGAIN, "x"), TRANSIENT),
    (InterruptedError(errno.EINTR, "x"), TRANSIENT),
    (asyncio.CancelledError(), TRANSIENT),
]


@pytest.mark.parametrize(("error", "category"), BY_TYPE, ids=lambda value: repr(value)[:40])
def test_a_type_tells_the_category(error: BaseException, category: Category) -> None:
    assert Classifier()(error) == Verdict(category, category in RETRYABLE)


def test_an_unknown_error_is_worth_another_try() -> None:
    assert Classifier()(Odd("boom")) == Verdict(TRANSIENT, True)


def test_the_fallback_can_be_permanent() -> None:
    assert Classifier(fallback=PERMANENT)(Odd("boom")) == Verdict(PERMANENT, False)


class GrpcStatus(Enum):
    UNAVAILABLE = 14
    PERMISSION_DENIED = 7


class RpcError(Exception):
    def code(self) -> GrpcStatus:
        return GrpcStatus.UNAVAILABLE


REQUEST = httpx.Request("GET", "https://shop.test/")
BY_CODE: list[tuple[BaseException, Verdict]] = [
    (smtplib.SMTPResponseException(421, b"later"), Verdict(TRANSIENT, True, "421")),
    (smtplib.SMTPResponseException(452, b"full"), Verdict(RESOURCE, True, "452")),
    (smtplib.SMTPDataError(550, b"no such user"), Verdict(PERMANENT, False, "550")),
    (smtplib.SMTPAuthenticationError(535, b"bad"), Verdict(PERMISSION, False, "535")),
    (smtplib.SMTPHeloError(503, b"sequence"), Verdict(VALIDATION, False, "503")),
    (smtplib.SMTPRecipientsRefused({"a@x.org": (550, b"")}), Verdict(PERMANENT, False, "550")),
    (
        smtplib.SMTPRecipientsRefused({"a@x.org": (550, b""), "b@x.org": (451, b"")}),
        Verdict(TRANSIENT, True, "451"),
    ),
    (
        urllib.error.HTTPError("https://x.org", 503, "busy", EmailMessage(), None),
        Verdict(TRANSIENT, True, "503"),
    ),
    (httpx.HTTPStatusError("", request=REQUEST, response=httpx.Response(404)), Verdict(PERMANENT, False, "404")),
    (httpx.HTTPStatusError("", request=REQUEST, response=httpx.Response(502)), Verdict(NETWORK, True, "502")),
    (with_attributes(Odd(), status=429), Verdict(TRANSIENT, True, "429")),
    (with_attributes(Odd(), status_code=403), Verdict(PERMISSION, False, "403")),
    (RpcError(), Verdict(NETWORK, True, "UNAVAILABLE")),
    (with_attributes(Odd(), status=GrpcStatus.PERMISSION_DENIED), Verdict(PERMISSION, False, "PERMISSION_DENIED")),
    (with_attributes(Odd(), response={"Error": {"Code": "Throttling"}}), Verdict(TRANSIENT, True, "Throttling")),
    (
        with_attributes(Odd(), response={"Error": {"Code": "MessageRejected"}}),
        Verdict(PERMANENT, False, "MessageRejected"),
    ),
    (with_attributes(Odd(), response={"Error": {"Code": "404"}}), Verdict(PERMANENT, False, "404")),
    (with_attributes(Odd(), code="smtp:450"), Verdict(TRANSIENT, True, "450")),
    (with_attributes(Odd(), code="http:503"), Verdict(TRANSIENT, True, "503")),
    (with_attributes(Odd(), code=503), Verdict(TRANSIENT, True, "503")),
    (with_attributes(Odd("SMTP said no"), code=503), Verdict(VALIDATION, False, "503")),
    (with_attributes(Odd(), code="RESOURCE_EXHAUSTED"), Verdict(RESOURCE, True, "RESOURCE_EXHAUSTED")),
    (with_attributes(Odd(), code="E-4711"), Verdict(TRANSIENT, True, "E-4711")),
]


@pytest.mark.parametrize(("error", "verdict"), BY_CODE, ids=lambda value: repr(value)[:40])
def test_a_code_is_found_where_its_driver_puts_it(error: BaseException, verdict: Verdict) -> None:
    assert Classifier()(error) == verdict


def test_a_code_says_more_than_a_general_type() -> None:
    refused = with_attributes(ConnectionError("no"), smtp_code=550)
    assert Classifier()(refused) == Verdict(PERMANENT, False, "550")


def test_the_status_of_a_process_is_no_http_code() -> None:
    assert Classifier()(SystemExit(503)) == Verdict(PERMANENT, False)


class ConnectTimeout(Exception):
    pass


class RateLimited(Exception):
    pass


BY_WORDS: list[tuple[BaseException, Category]] = [
    (ConnectTimeout("x"), NETWORK),
    (RateLimited("x"), TRANSIENT),
    (httpx.ConnectError("x"), NETWORK),
    (httpx.ReadError("x"), NETWORK),
    (smtplib.SMTPServerDisconnected("x"), NETWORK),
    (Odd("Connection reset by peer"), NETWORK),
    (Odd("No space left on device"), RESOURCE),
    (Odd("Access denied for user"), PERMISSION),
    (Odd("malformed order"), VALIDATION),
]


@pytest.mark.parametrize(("error", "category"), BY_WORDS, ids=lambda value: repr(value)[:40])
def test_words_are_the_last_resort(error: BaseException, category: Category) -> None:
    assert Classifier(fallback=PERMANENT)(error).category is category


def test_what_a_handler_says_on_purpose_is_taken_as_said() -> None:
    classify = Classifier()
    assert classify(Permanent("timed out", code="550")) == Verdict(PERMANENT, False, "550")
    assert classify(Transient("invalid")) == Verdict(TRANSIENT, True)
    assert classify(Permanent("x", category=VALIDATION)) == Verdict(VALIDATION, False)
    assert classify(Transient("x", code="smtp:550")) == Verdict(TRANSIENT, True, "550")


def test_a_rule_of_the_user_comes_before_everything() -> None:
    classify = Classifier([lambda error: NETWORK if isinstance(error, Permanent) else None])
    assert classify(Permanent("x")) == Verdict(NETWORK, True)
    assert classify(ValueError("x")).category is VALIDATION


def test_a_rule_can_decorate_a_function_and_keeps_the_code() -> None:
    classify = Classifier()

    @classify.register
    def payments(error: BaseException) -> Verdict | None:
        return Verdict(RESOURCE, False) if isinstance(error, Odd) else None

    assert classify(with_attributes(Odd(), code=503)) == Verdict(RESOURCE, False, "503")
    assert payments(ValueError()) is None


def test_types_can_be_given_a_category() -> None:
    classify = Classifier()
    classify.on(KeyError, IndexError, category=TRANSIENT)
    classify.on(ValueError, category=VALIDATION, retryable=True)
    assert classify(KeyError("x")) == Verdict(TRANSIENT, True)
    assert classify(ValueError("x")) == Verdict(VALIDATION, True)


def test_a_rule_that_raises_or_babbles_only_loses_its_say() -> None:
    def broken(error: BaseException) -> Category:
        raise RuntimeError("rule")

    babbling: Any = lambda error: "whatever"  # noqa: E731
    rules: list[Rule] = [broken, babbling]
    assert Classifier(rules)(TimeoutError()) == Verdict(NETWORK, True)


def chained(outer: BaseException, cause: BaseException | None, context: BaseException | None) -> BaseException:
    outer.__cause__, outer.__context__ = cause, context
    outer.__suppress_context__ = cause is not None
    return outer


def test_an_unknown_error_is_what_caused_it() -> None:
    assert Classifier()(chained(Odd("failed"), ValueError("x"), None)) == Verdict(VALIDATION, False)


def test_a_known_error_is_not_what_caused_it() -> None:
    assert Classifier()(chained(TimeoutError(), ValueError("x"), None)) == Verdict(NETWORK, True)


def test_a_context_can_make_an_error_retryable_but_not_final() -> None:
    classify = Classifier(fallback=PERMANENT)
    assert classify(chained(Odd("failed"), None, TimeoutError())) == Verdict(NETWORK, True)
    assert Classifier()(chained(Odd("failed"), None, KeyError("cache miss"))) == Verdict(TRANSIENT, True)


def test_a_hidden_context_counts_for_nothing() -> None:
    error = chained(Odd("failed"), None, TimeoutError())
    error.__suppress_context__ = True
    assert Classifier(fallback=PERMANENT)(error) == Verdict(PERMANENT, False)


def test_causes_in_a_circle_end() -> None:
    first, second = Odd("a"), Odd("b")
    first.__cause__, second.__cause__ = second, first
    assert Classifier()(first) == Verdict(TRANSIENT, True)


def test_a_group_cannot_succeed_while_one_of_it_cannot() -> None:
    inner = ExceptionGroup("inner", [ValueError("x")])
    assert Classifier()(ExceptionGroup("group", [TimeoutError(), inner])) == Verdict(VALIDATION, False)
    assert Classifier()(ExceptionGroup("group", [Odd("x"), TimeoutError()])) == Verdict(NETWORK, True)


class Hostile(Exception):
    response = property(lambda self: 1 / 0)
    recipients = property(lambda self: 1 / 0)
    status = "N/A"

    def code(self) -> int:
        raise RuntimeError("no code")

    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_a_hostile_error_still_gets_a_verdict() -> None:
    assert Classifier()(Hostile()) == Verdict(TRANSIENT, True)


def test_one_hostile_attribute_does_not_hide_the_others() -> None:
    assert Classifier()(with_attributes(Hostile(), smtp_code=550)) == Verdict(PERMANENT, False, "550")


def test_a_code_alone() -> None:
    assert classify_code("503") == Verdict(TRANSIENT, True, "503")
    assert classify_code(503, "smtp") == Verdict(VALIDATION, False, "503")
    assert classify_code("ThrottlingException") == Verdict(TRANSIENT, True, "ThrottlingException")
    assert classify_code("nonsense") is None
    assert classify_code(200) is None


def test_a_text_alone() -> None:
    assert classify_text("SMTP 550 mailbox unavailable") == Verdict(PERMANENT, False, "550")
    assert classify_text("Request failed with status code 429") == Verdict(TRANSIENT, True, "429")
    assert classify_text("Connection timeout") == Verdict(NETWORK, True)
    assert classify_text("all is well") is None
