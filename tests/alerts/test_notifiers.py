"""Each notifier against a real server: what it sends, and what it makes of every kind of answer."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.utils import format_datetime
from typing import Any

import httpx
import pytest
from aiosmtpd.smtp import SMTP, Envelope, Session
from msgspec.structs import replace

from redrive.alerts import Alerts, Kind, Notice, Notifier, Severity, Undelivered
from redrive.alerts.masking import UrlMask
from redrive.alerts.notifiers import http as http_of_notifiers
from redrive.alerts.notifiers import name_of, open_notifier, open_notifiers
from redrive.alerts.notifiers.webhook import signature
from redrive.errors import ConfigError, MissingExtra
from redrive.telemetry.events import AlertsSent, NotifierDown
from redrive.testing.clock import START
from redrive.testing.waiting import until
from tests.alerts.conftest import SECRET, an_alert, an_app, seen
from tests.alerts.receiver import CLOSE, HANG, Answer, Receiver

Open = Callable[[str], Notifier]
ALERT = an_alert(
    "NewGroup:g1",
    name="NewGroup",
    group="g1",
    source="orders",
    details={"error": "ValueError: no price"},
    labels={"team": "shop"},
    links={"console": "https://redrive.example/#group=g1"},
)


def notice(kind: Kind = Kind.OPENED, **changes: Any) -> Notice:
    alert = replace(ALERT, resolved_at=START + timedelta(minutes=5)) if kind is Kind.RESOLVED else ALERT
    given: dict[str, Any] = {"id": "n1", "kind": kind, "alert": alert, "count": 3, "since": 2}
    return Notice(**(given | changes))


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    made: list[Notifier] = []

    def open_(url: str) -> Notifier:
        made.append(open_notifier(url))
        return made[-1]

    yield open_
    for one in made:
        await one.aclose()


@pytest.fixture
def pager(opened: Open, receiver: Receiver) -> Notifier:
    return opened(f"pagerduty+http://{SECRET}@{receiver.host}")


@pytest.fixture
def hook(opened: Open, receiver: Receiver) -> Notifier:
    return opened(f"webhook+http://{receiver.host}/hooks/{SECRET}?team=shop#signing")


async def test_pagerduty_is_triggered_acknowledged_and_resolved_under_one_key(
    pager: Notifier, receiver: Receiver
) -> None:
    for kind in Kind:
        await pager.notify([notice(kind)])
    assert {one.path for one in receiver.requests} == {"/v2/enqueue"}
    sent = [one.json for one in receiver.requests]
    assert [one["event_action"] for one in sent] == ["trigger", "trigger", "acknowledge", "resolve"]
    assert {(one["dedup_key"], one["routing_key"]) for one in sent} == {("NewGroup:g1", SECRET)}
    payload = sent[0]["payload"]
    assert (payload["summary"], payload["severity"], payload["source"]) == ("it burns", "error", "orders")
    assert (payload["class"], payload["group"]) == ("NewGroup", "g1")
    assert payload["custom_details"] == {"error": "ValueError: no price", "team": "shop", "count": 3}
    assert sent[0]["links"] == [{"href": "https://redrive.example/#group=g1", "text": "console"}]


async def test_pagerduty_takes_no_longer_texts_than_it_says(pager: Notifier, receiver: Receiver) -> None:
    await pager.notify([notice(alert=replace(ALERT, key="k" * 300, summary="s" * 2000))])
    [sent] = receiver.requests
    assert len(sent.json["dedup_key"]) <= 255
    assert len(sent.json["payload"]["summary"]) == 1024


async def test_pagerduty_is_asked_at_its_own_address_unless_another_is_given(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def request(client: httpx.AsyncClient, method: str, url: httpx.URL, **given: object) -> httpx.Response:
        asked.append(f"{url.scheme}://{url.host}")
        return httpx.Response(202)

    monkeypatch.setattr(httpx.AsyncClient, "request", request)
    for address in ("pagerduty://KEY", "pagerduty://KEY@events.eu.pagerduty.com"):
        await opened(address).notify([notice()])
    assert asked == ["https://events.pagerduty.com", "https://events.eu.pagerduty.com"]


async def test_a_webhook_gets_all_at_once_and_signed(hook: Notifier, receiver: Receiver) -> None:
    await hook.notify([notice(), notice(Kind.RESOLVED, id="n2")])
    [sent] = receiver.requests
    assert sent.path == f"/hooks/{SECRET}?team=shop"
    assert sent.json["version"] == 1
    assert [(one["id"], one["kind"]) for one in sent.json["notices"]] == [("n1", "opened"), ("n2", "resolved")]
    assert sent.json["notices"][0]["alert"]["summary"] == "it burns"
    at = sent.headers["x-redrive-timestamp"]
    assert sent.headers["x-redrive-signature"] == signature(b"signing", at, sent.body)
    assert abs(int(at) - datetime.now(UTC).timestamp()) < 60


async def test_a_webhook_without_a_secret_is_not_signed(opened: Open, receiver: Receiver) -> None:
    await opened(f"webhook+http://{receiver.host}/x").notify([notice()])
    assert "x-redrive-signature" not in receiver.requests[0].headers


async def test_a_name_and_password_are_sent_as_such(opened: Open, receiver: Receiver) -> None:
    await opened(f"webhook+http://ann:{SECRET}@{receiver.host}/x").notify([notice()])
    assert receiver.requests[0].headers["authorization"].startswith("Basic ")


@pytest.mark.parametrize(
    ("answer", "retryable", "after"),
    [
        (Answer(429, (("Retry-After", "7"),)), True, timedelta(seconds=7)),
        (Answer(429, (("Retry-After", "soon"),)), True, None),
        (Answer(503, (("Retry-After", "999999999999999999"),)), True, None),
        (Answer(503, (("Retry-After", "86400"),)), True, timedelta(hours=1)),
        (Answer(500), True, None),
        (Answer(400, body=b"no such\nrouting key"), False, None),
        (Answer(404), False, None),
        (Answer(302, (("Location", "http://127.0.0.1:1/"),)), False, None),
        (CLOSE, True, None),
    ],
)
async def test_an_answer_says_whether_to_try_again(
    pager: Notifier, receiver: Receiver, answer: Answer, retryable: bool, after: timedelta | None
) -> None:
    receiver.answers.append(answer)
    with pytest.raises(Undelivered) as caught:
        await pager.notify([notice()])
    assert (caught.value.retryable, caught.value.after) == (retryable, after)
    assert receiver.host not in str(caught.value)


async def test_a_date_to_wait_for_is_understood(pager: Notifier, receiver: Receiver) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(minutes=10), usegmt=True)
    receiver.answers.append(Answer(503, (("Retry-After", date),)))
    with pytest.raises(Undelivered) as caught:
        await pager.notify([notice()])
    assert caught.value.after is not None
    assert timedelta(minutes=9) < caught.value.after <= timedelta(minutes=10)


async def test_one_that_hangs_is_given_up_for_now(
    opened: Open, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_of_notifiers, "_PATIENCE", 0.05)
    receiver.answers.append(HANG)
    with pytest.raises(Undelivered, match="no answer in time") as caught:
        await opened(f"webhook+http://{receiver.host}/x").notify([notice()])
    assert caught.value.retryable


async def test_nobody_there(opened: Open, receiver: Receiver) -> None:
    for url in (f"webhook+http://{receiver.host}/x", f"pagerduty+http://KEY@{receiver.host}"):
        await opened(url).check()
    for url in ("webhook+http://127.0.0.1:1/x", "pagerduty+http://KEY@127.0.0.1:1", "alertmanager+http://127.0.0.1:1"):
        with pytest.raises(Undelivered, match="connect"):
            await opened(url).check()


# -- apprise -----------------------------------------------------------------------------------------------------------


async def test_apprise_sends_what_it_is_given(opened: Open, receiver: Receiver) -> None:
    teller = opened(f"json://{receiver.host}/{SECRET}")
    receiver.always = Answer(200)
    await teller.notify([notice()])
    await teller.notify([notice(), notice(Kind.RESOLVED, id="n2")])
    await teller.notify([notice(Kind.ACKNOWLEDGED)])  # nobody needs to hear that
    first, second = (one.json for one in receiver.requests)
    assert first["title"] == "[redrive] error: it burns"
    assert "error: ValueError: no price" in first["message"]
    assert "console: https://redrive.example/#group=g1" in first["message"]
    assert first["type"] == "failure"
    assert second["title"] == "[redrive] 2 alerts: 1 opened, 1 resolved"
    assert second["message"] == "- error: it burns\n- resolved: it burns"


async def test_what_apprise_cannot_deliver_says_why(opened: Open, receiver: Receiver) -> None:
    receiver.always = Answer(500)
    with pytest.raises(Undelivered, match="500"):
        await opened(f"json://{receiver.host}").notify([notice()])


class Mailbox:
    """What an SMTP server is given."""

    def __init__(self) -> None:
        self.mails: list[bytes] = []

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes)
        self.mails.append(envelope.content)
        return "250 OK"


async def test_a_mail_arrives(opened: Open) -> None:
    box = Mailbox()
    server = await asyncio.get_running_loop().create_server(lambda: SMTP(box), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        url = f"mailto://127.0.0.1:{port}?from=redrive@example.org&to=ops@example.org&mode=insecure"
        await opened(url).notify([notice()])
    [mail] = map(message_from_bytes, box.mails)
    assert mail["Subject"] == "[redrive] error: it burns"
    assert mail["To"] is not None
    assert "ops@example.org" in mail["To"]


# -- URLs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3cr3t", "no URL of a notifier"),
        ("pagerduty://", "no URL of a notifier"),
        ("pagerduty://@host", "routing key"),
        ("nosuch://s3cr3t-key", "apprise does not know nosuch://"),
        ("webhook+https:///s3cr3t", "names no host"),
        ("webhook+https://host:port/s3cr3t", "no valid URL"),
        ("slack://s3cr3t", "apprise does not know slack://"),
    ],
)
def test_a_url_that_makes_no_sense_is_refused_without_showing_it(
    url: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(ConfigError, match=said) as caught:
        open_notifier(url)
    assert "s3cr3t" not in str(caught.value)
    assert "s3cr3t" not in caplog.text


def test_the_same_url_twice_is_one_notifier() -> None:
    url = "pagerduty://KEY"
    assert [one.name for one in open_notifiers([url, url])] == [name_of(url)]
    assert name_of(url) != name_of("pagerduty://KEY2")
    assert "KEY" not in name_of(url)


async def test_no_secret_of_a_url_comes_into_a_log_or_an_event(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    """By us or by a library, however much is logged, whatever the answer."""
    caplog.set_level(logging.DEBUG)
    receiver.answers.extend(
        [
            Answer(200),
            Answer(500, body=SECRET.encode()),
            Answer(403, body=f"bad key {SECRET}".encode()),
            CLOSE,
            Answer(200),
            Answer(500),
        ]
    )
    urls = (
        f"webhook+http://{receiver.host}/hooks/{SECRET}",
        f"pagerduty+http://{SECRET}@{receiver.host}",
        f"json://{receiver.host}/{SECRET}",
    )
    async with an_app(urls=urls, interval=timedelta(milliseconds=5)) as app:
        events = seen(app)
        async with Alerts.of(app) as alerts:
            for number in range(3):
                alerts.report(an_alert(str(number), severity=Severity.CRITICAL))
                await receiver.got(2 * number + 1)
            await until(lambda: any(isinstance(one, AlertsSent) for one in events))
        assert any(isinstance(one, NotifierDown) for one in events)
        assert SECRET not in str(events)
        assert any(SECRET in str(one) for one in receiver.requests)
    assert SECRET not in caplog.text
    assert "httpx" in caplog.text  # it did log


def test_discretion_ends_with_its_use() -> None:
    logger = logging.getLogger("httpx")
    before = list(logger.filters)
    with UrlMask([f"slack://{SECRET}/a/b"]) as mask:
        assert mask.text(f"POST /services/{SECRET}") == "POST /services/[redacted]"
        assert mask in logger.filters
    assert logger.filters == before
    assert UrlMask([]).text("anything") == "anything"


async def test_a_thread_of_apprise_that_hangs_does_not_hold_up_the_loop(opened: Open, receiver: Receiver) -> None:
    receiver.always = HANG
    task = asyncio.create_task(opened(f"json://{receiver.host}?rto=0.2&cto=0.2").notify([notice()]))
    await receiver.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("library", "url"),
    [("httpx", "pagerduty://KEY"), ("httpx", "alertmanager+http://h"), ("apprise", "json://127.0.0.1")],
)
def test_without_its_extra_it_says_what_to_install(library: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("redrive.alerts.notifiers.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[alerts\]'"):
        open_notifier(url)
