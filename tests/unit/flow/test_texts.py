"""Messages as they are met in the wild."""

from __future__ import annotations

import pytest

from redrive.flow.codes import Code, Family
from redrive.flow.texts import category_in, code_in, spoken_name
from redrive.model import Category


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Rate limit exceeded", Category.TRANSIENT),
        ("rate-limited by upstream", Category.TRANSIENT),
        ("ThrottledException: slow down", Category.TRANSIENT),
        ("service temporarily unavailable", Category.TRANSIENT),
        ("database is locked", Category.TRANSIENT),
        ("resource busy, try again", Category.TRANSIENT),
        ("Read timed out.", Category.NETWORK),
        ("Connection timeout", Category.NETWORK),
        ("connection refused", Category.NETWORK),
        ("Network is unreachable", Category.NETWORK),
        ("DNS lookup failed", Category.NETWORK),
        ("invalid certificate", Category.NETWORK),
        ("CUDA out of memory", Category.RESOURCE),
        ("disk full", Category.RESOURCE),
        ("Quota exceeded for project", Category.RESOURCE),
        ("Too many open files", Category.RESOURCE),
        ("permission denied", Category.PERMISSION),
        ("401 Unauthorised", Category.PERMISSION),
        ("Forbidden", Category.PERMISSION),
        ("Invalid input", Category.VALIDATION),
        ("schema mismatch", Category.VALIDATION),
        ("parse error near line 3", Category.VALIDATION),
        ("cannot reach the schema registry", Category.NETWORK),
        ("businesslike", None),
        ("something went wrong", None),
    ],
)
def test_words(text: str, expected: Category | None) -> None:
    assert category_in(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SMTP error: 550 no such user", Code("550", Family.SMTP)),
        ("550 5.1.1 no such user", Code("550", Family.SMTP)),
        ("HTTP 503", Code("503", Family.HTTP)),
        ("HTTP/1.1 502 Bad Gateway", Code("502", Family.HTTP)),
        ("HTTP Error 404: Not Found", Code("404", Family.HTTP)),
        ("status code 429", Code("429", Family.HTTP)),
        ("status=503", Code("503", Family.HTTP)),
        ("<RpcError: StatusCode.UNAVAILABLE>", Code("UNAVAILABLE", Family.GRPC)),
        ("An error occurred (Throttling) when calling SendEmail", Code("Throttling", Family.AWS)),
        ("order 503 is odd", None),
        ("HTTP 5031", None),
        ("status 200", None),
    ],
)
def test_codes_in_words(text: str, expected: Code | None) -> None:
    assert code_in(text) == expected


def test_the_words_of_a_name() -> None:
    assert spoken_name(type("HTTPReadTimeout_Error", (), {})) == "HTTP Read Timeout Error"
