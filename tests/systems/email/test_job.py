"""What is a job, what is an entry of the DLQ, and what is neither."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import UsageError
from redrive.model import Reason
from redrive.systems.email import EmailJob, EmailShape, read_job, validate_dlq_entry
from redrive.systems.email.addresses import read_address, read_addresses
from redrive.testing.builders import make_failure, make_letter, make_message
from tests.systems.email.jobs import job, written

ENTRY = {
    "jobId": "123e4567-e89b-12d3-a456-426614174000",
    "outboxId": "123e4567-e89b-12d3-a456-426614174000",
    "companyId": "789e4567-e89b-12d3-a456-426614174999",
    "originalData": {"to": "ana@example.com"},
    "failedAttempts": 5,
    "lastFailureReason": "SMTP 421: Service not available",
    "lastFailureCode": "421",
    "lastFailureTimestamp": "2025-10-19T10:30:00.000Z",
    "enqueuedAt": "2025-10-19T10:00:00.000Z",
    "movedToDLQAt": "2025-10-19T10:30:00.000Z",
    "ttl": 604800000,
}
FIELDS = set(ENTRY)
BESIDE = re.compile(r'"(?:[^"\\]|\\.)*"|\((?:[^()\\]|\\.)*\)')  # quotes and comments


def test_a_job_is_read_with_its_recipients_each_once() -> None:
    read = read_job(written(to=["Ana <ana@example.com>", "bob@example.com"], cc=["ana@example.com"], bcc=["z@e.org"]))
    assert read.recipients == ("ana@example.com", "bob@example.com", "z@e.org")
    assert (read.outbox_id, read.company_id) == ("o-1", "acme")


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a@x.org, b@y.org", ["a@x.org", "b@y.org"]),
        ("a@x.org; b@y.org;", ["a@x.org", "b@y.org"]),
        ('"Ana, of Shop" <a@x.org>, Bob <b@y.org>', ["a@x.org", "b@y.org"]),
        ("Ana (home) <a@x.org>", None),
        ("a@x.org (Ana)", ["a@x.org"]),
        ("a@example.com (c) x", None),
        ("a@x.org b@y.org", None),
        ("a@x.org,, b@y.org", None),
        ("a@x.org, nobody", None),
        ("Ana <a@x.org> <b@y.org>", None),
        ("Ana <a@x.org> b@y.org", None),
        ("<a@x.org", None),
        ('"Ana <a@x.org>', None),
        ("Team: a@x.org, b@y.org;", None),
        ('"a b"@x.org', ['"a b"@x.org']),
        ('"a,b"@x.org, c@y.org', ['"a,b"@x.org', "c@y.org"]),
        ("a..b@x.org", None),
        (".a@x.org", None),
        ("a@x..org", None),
        ("a@-x.org", None),
        ("a@x.org.", None),
        ("a@[127.0.0.1]", ["a@[127.0.0.1]"]),
        ("jo\u00e3o@exemplo.com.br", ["jo\u00e3o@exemplo.com.br"]),
        ("Jo\u00e3o <j@caf\u00e9.example>", ["j@caf\u00e9.example"]),
        ("a@X.org, a@x.org", ["a@X.org"]),
        ("a@b@x.org", None),
        ("@x.org", None),
        ("a" * 65 + "@x.org", None),
        ("a@" + "x." * 130 + "org", None),
        ("a@x.org\u2028b@y.org", None),
        ("a@x.org\ud800", None),
        ("a@x org", None),
        ("a @x.org", None),
        ('a"b"@x.org', None),
    ],
)
def test_every_address_of_a_text_gets_it_or_the_job_is_refused(text: str, addresses: list[str] | None) -> None:
    fields = job(to=text)
    if addresses is None:
        with pytest.raises(ValueError, match="is no address"):
            msgspec.convert(fields, EmailJob)
    else:
        assert list(msgspec.convert(fields, EmailJob).recipients) == addresses


def test_who_it_is_from_is_one() -> None:
    with pytest.raises(UsageError, match="one is wanted here"):
        read_job(written(**{"from": "a@x.org, b@x.org"}))


def test_copies_and_replies_may_be_several_in_one_text_too() -> None:
    read = read_job(written(cc="b@x.org; c@x.org", bcc=["d@x.org, e@x.org"], replyTo="f@x.org, g@x.org"))
    assert read.recipients == ("ana@example.com", "b@x.org", "c@x.org", "d@x.org", "e@x.org")
    assert [box.address for box in read.reply_to_boxes] == ["f@x.org", "g@x.org"]


@given(st.lists(st.text(st.sampled_from('ab.@<>()[]";,: \\"é'), max_size=12), min_size=1, max_size=4))
def test_no_text_loses_or_joins_an_address(parts: list[str]) -> None:
    """What is read is in the text, and what is written from it is read as the same again."""
    text = ", ".join(parts)
    try:
        boxes = read_addresses(text)
    except ValueError:
        return
    assert len(boxes) == BESIDE.sub("", text).count("@")
    for box in boxes:
        assert box.address in text
        assert read_address(box.address).address == box.address


def test_what_a_job_does_not_name_is_left_alone() -> None:
    assert read_job(written(requestId="r-7")).subject == "Your order"


def test_a_company_id_of_10_kb_is_one() -> None:
    assert len(read_job(written(company="c" * 10_240)).company_id) == 10_240


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"outbox": "  "}, "outboxId is blank"),
        ({"outbox": ""}, "outboxId"),
        ({"outbox": "a\nb"}, "outboxId is blank or has control"),
        ({"company": ""}, "companyId"),
        ({"to": []}, "no recipient"),
        ({"to": "ana"}, "'ana' is no address"),
        ({"to": "ana@"}, "is no address"),
        ({"to": ""}, "is no address"),
        ({"to": "a@b@c.org"}, "is no address"),
        ({"to": "ana@example.com\r\nBcc: x@y.z"}, "control characters"),
        ({"from": "nobody"}, "'nobody' is no address"),
        ({"subject": "a\r\nBcc: x@y.z"}, "forge a header"),
        ({"text": None}, "neither html nor text"),
        ({"replyTo": "x"}, "is no address"),
        ({"headers": {"Bcc": "x@y.z"}}, "the job's own fields"),
        ({"headers": {"X-A": "b\r\nBcc: x@y.z"}}, "no header may have"),
        ({"headers": {"X A": "b"}}, "no header may have"),
        ({"subject": 7}, "subject"),
    ],
)
def test_a_job_that_cannot_be_sent_is_refused_with_the_reason(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match="is no e-mail job") as refused:
        read_job(written(**changes))
    assert says in str(refused.value)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff\xfe", b'{"outboxId": "1"'])
def test_bytes_that_are_no_job_are_refused(data: bytes) -> None:
    with pytest.raises(UsageError, match="is no e-mail job"):
        read_job(data)


def test_an_entry_of_the_document_is_one() -> None:
    assert validate_dlq_entry(ENTRY).lastFailureCode == "421"
    without = {name: value for name, value in ENTRY.items() if name != "lastFailureCode"}
    assert validate_dlq_entry(without).failedAttempts == 5


@pytest.mark.parametrize("reason", ["", "   ", "\n\t"])
def test_a_blank_reason_is_refused(reason: str) -> None:
    with pytest.raises(UsageError, match="lastFailureReason is blank"):
        validate_dlq_entry({**ENTRY, "lastFailureReason": reason})


@pytest.mark.parametrize("name", sorted(FIELDS - {"lastFailureCode"}))
def test_every_field_but_the_code_is_mandatory(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        validate_dlq_entry({key: value for key, value in ENTRY.items() if key != name})


@pytest.mark.parametrize(("attempts", "code"), [(4, "421"), (1, None), (4, "Throttling"), (-1, "550")])
def test_only_a_permanent_error_comes_before_the_fifth_attempt(attempts: int, code: str | None) -> None:
    changes = {"failedAttempts": attempts, "lastFailureCode": code}
    entry = {name: value for name, value in {**ENTRY, **changes}.items() if value is not None}
    with pytest.raises(UsageError, match="failedAttempts"):
        validate_dlq_entry(entry)


def test_what_nobody_tried_has_no_attempt() -> None:
    assert validate_dlq_entry({**ENTRY, "failedAttempts": 0, "lastFailureCode": "554"}).failedAttempts == 0


def test_a_permanent_error_comes_at_once() -> None:
    assert validate_dlq_entry({**ENTRY, "failedAttempts": 1, "lastFailureCode": "550"}).failedAttempts == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"movedToDLQAt": "yesterday"},
        {"enqueuedAt": "2025-13-19T10:00:00Z"},
        {"lastFailureTimestamp": "2025-10-19 10:00"},
        {"ttl": 0},
        {"ttl": "7d"},
        {"originalData": "text"},
        {"jobId": "another"},
        {"more": 1},
    ],
)
def test_an_entry_that_is_none_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="no entry of the DLQ"):
        validate_dlq_entry({**ENTRY, **changes})


def entry_of(**changes: Any) -> dict[str, Any]:
    failure = make_failure(**{"attempt": 5, "code": "421", "message": "SMTP 421: later", **changes.pop("failure", {})})
    message = make_message(
        **{"id": "o-1", "source": "email:send", "body": written(), "tenant": "acme", **changes.pop("message", {})}
    )
    letter = make_letter(message, failure, **{"reason": Reason.ATTEMPTS, **changes})
    entry: dict[str, Any] = json.loads(EmailShape().encode(letter))
    return entry


def test_a_letter_is_an_entry_with_exactly_the_documents_fields() -> None:
    entry = entry_of()
    assert set(entry) == FIELDS
    assert validate_dlq_entry(entry).originalData == job()
    assert (entry["jobId"], entry["companyId"], entry["failedAttempts"]) == ("o-1", "acme", 5)
    assert entry["ttl"] == timedelta(days=7) // timedelta(milliseconds=1)


def test_the_producers_bytes_are_in_the_entry_as_they_were() -> None:
    body = b'{"z": 1.0,   "companyId":"acme", "a":"\\u00e9"}'
    message = make_message(id="o-1", body=body)
    assert body in EmailShape().encode(make_letter(message, make_failure(code="550"), reason=Reason.PERMANENT))


@pytest.mark.parametrize(
    ("reason", "code"),
    [(Reason.UNDECODABLE, "500"), (Reason.TOO_LARGE, "552"), (Reason.EXPIRED, "554"), (Reason.PERMANENT, "554")],
)
def test_what_died_early_by_no_code_of_a_server_has_a_permanent_one(reason: Reason, code: str) -> None:
    entry = entry_of(reason=reason, failure={"attempt": 1, "code": None})
    assert validate_dlq_entry(entry).lastFailureCode == code


@pytest.mark.parametrize(
    "body", [b"", b"\xff\x00", b"[1]", b'"text"', b"{", b"null", b'{"a": ' * 5000 + b"1" + b"}" * 5000]
)
def test_bytes_that_are_no_job_have_an_entry_too(body: bytes) -> None:
    entry = entry_of(message={"body": body, "tenant": None}, reason=Reason.UNDECODABLE, failure={"message": " "})
    assert validate_dlq_entry(entry).companyId == "unknown"
    assert list(entry["originalData"]) == ["base64"]
