"""The tables of codes, read as the systems' own documents read them."""

from __future__ import annotations

import grpc
import pytest

from redrive.flow.classify import RETRYABLE
from redrive.flow.codes import Code, Family, category_of, find_code, parse_code
from redrive.model import Category

EMAIL_RETRYABLE = ["smtp:421", "smtp:450", "smtp:451", "smtp:452", "Throttling", "ServiceUnavailable"]
EMAIL_PERMANENT = ["smtp:500", "smtp:550", "smtp:554", "MessageRejected", "MailFromDomainNotVerified"]


def category(code: str | int, family: Family | None = None) -> Category | None:
    parsed = parse_code(code, family)
    return category_of(parsed) if parsed else None


@pytest.mark.parametrize("code", EMAIL_RETRYABLE)
def test_the_email_contract_retries_these(code: str) -> None:
    assert category(code) in RETRYABLE


@pytest.mark.parametrize("code", EMAIL_PERMANENT)
def test_the_email_contract_buries_these(code: str) -> None:
    assert category(code) is not None
    assert category(code) not in RETRYABLE


@pytest.mark.parametrize("number", range(400, 600))
def test_every_smtp_code_is_retried_below_500_and_only_there(number: int) -> None:
    assert (category(number, Family.SMTP) in RETRYABLE) is (number < 500)


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ((408, 409, 423, 425, 429, 500, 503, 529), Category.TRANSIENT),
        ((502, 504), Category.NETWORK),
        ((507,), Category.RESOURCE),
        ((401, 403, 407), Category.PERMISSION),
        ((400, 413, 415, 422), Category.VALIDATION),
        ((404, 410, 501, 505), Category.PERMANENT),
        ((200, 302, 600, 42), None),
    ],
)
def test_http(codes: tuple[int, ...], expected: Category | None) -> None:
    assert {category(code) for code in codes} == {expected}


def test_grpc_has_all_its_seventeen() -> None:
    assert len(grpc.StatusCode) == 17
    assert all(category(f"grpc:{status.name}") is not None for status in grpc.StatusCode)
    assert category("unavailable") is Category.NETWORK
    assert category("grpc:INVALID_ARGUMENT") is Category.VALIDATION


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ThrottlingException", Category.TRANSIENT),
        ("TooManyRequestsException", Category.TRANSIENT),
        ("SlowDown", Category.TRANSIENT),
        ("InternalFailure", Category.TRANSIENT),
        ("RequestTimeout", Category.NETWORK),
        ("LimitExceededException", Category.RESOURCE),
        ("AccessDeniedException", Category.PERMISSION),
        ("ExpiredTokenException", Category.PERMISSION),
        ("ValidationException", Category.VALIDATION),
        ("SomethingNew", None),
    ],
)
def test_aws_with_and_without_its_ending(name: str, expected: Category | None) -> None:
    assert category(name, Family.AWS) is expected


def test_spellings() -> None:
    assert parse_code("SMTP 421") == Code("421", Family.SMTP)
    assert parse_code(" http:503 ") == Code("503", Family.HTTP)
    assert parse_code("ses:MessageRejected") == Code("MessageRejected", Family.AWS)
    assert parse_code("E11") == Code("E11")


@pytest.mark.parametrize("value", [True, None, 4.5, b"421", "two words", "", "x" * 65, object()])
def test_what_is_no_code(value: object) -> None:
    assert parse_code(value) is None


class ResponseError(Exception):
    """As aiosmtplib's: the number under `code`, known by the module."""

    __module__ = "aiosmtplib.errors"

    def __init__(self, code: int) -> None:
        self.code = code


def test_aiosmtplib_is_known_by_its_module() -> None:
    assert find_code(ResponseError(450)) == Code("450", Family.SMTP)


def test_a_list_of_refused_recipients() -> None:
    error = Exception()
    error.recipients = [ResponseError(550), ResponseError(450)]  # type: ignore[attr-defined]
    assert find_code(error) == Code("450", Family.SMTP)
