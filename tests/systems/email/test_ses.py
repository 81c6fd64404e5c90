"""E-mail over SES: a local moto server, and one that answers what moto never would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from redrive.errors import ConfigError
from redrive.systems.email import Mail, SendError, open_sender
from tests.systems.email.test_smtp import AT, mail

pytestmark = pytest.mark.usefixtures("credentials")


async def send(endpoint: str, one: Mail, options: str = "") -> None:
    sender = open_sender(f"ses://eu-west-1?endpoint={endpoint}{options}")
    try:
        await sender.send(one)
    finally:
        await sender.aclose()


async def verify(endpoint: str) -> None:
    from aiobotocore.session import get_session  # type: ignore[import-untyped]

    async with get_session().create_client("sesv2", region_name="eu-west-1", endpoint_url=endpoint) as client:
        await client.create_email_identity(EmailIdentity="shop@example.org")


async def test_an_identity_that_is_not_verified_is_rejected_for_good(moto: str) -> None:
    with pytest.raises(SendError, match="SES MessageRejected: ") as raised:
        await send(moto, mail(**{"from": "stranger@example.net"}))
    assert (raised.value.code, raised.value.retryable) == ("MessageRejected", False)


async def test_an_email_is_taken(moto: str) -> None:
    await verify(moto)
    await send(moto, mail(to=["a@e.org", "Bo <b@e.org>"], bcc=["c@e.org"]))


async def test_only_those_who_have_not_got_it_are_in_the_destination() -> None:
    asked: list[dict[str, Any]] = []
    async with answering(200, {"MessageId": "1"}, asked) as endpoint:
        whole = mail(to=["a@e.org", "Bo <b@e.org>"], bcc=["c@e.org"])
        await send(endpoint, Mail(whole.job, ("b@e.org", "c@e.org"), AT), "&configuration_set=prod")
    (body,) = asked
    assert body["Destination"] == {"ToAddresses": ["Bo <b@e.org>"], "BccAddresses": ["c@e.org"]}
    assert body["ConfigurationSetName"] == "prod"
    assert body["EmailTags"] == [{"Name": "outboxId", "Value": "o-1"}]


@asynccontextmanager
async def answering(
    status: int, body: dict[str, Any], asked: list[dict[str, Any]], kind: str = ""
) -> AsyncIterator[str]:
    """An HTTP server with one answer."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reply(reader, writer)
        finally:
            writer.close()

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = next(int(line.split(":")[1]) for line in head.splitlines() if line.startswith("content-length:"))
        asked.append(json.loads(await reader.readexactly(length)))
        if not status:
            await asyncio.Event().wait()
        data = json.dumps(body).encode()
        error = f"x-amzn-ErrorType: {kind}\r\n" if kind else ""
        lines = f"HTTP/1.1 {status} -\r\ncontent-type: application/json\r\n{error}content-length: {len(data)}\r\n\r\n"
        writer.write(lines.encode() + data)
        await writer.drain()

    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(answer(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


@pytest.mark.parametrize(
    ("status", "kind", "code", "retryable"),
    [
        (429, "TooManyRequestsException", "TooManyRequests", True),
        (400, "Throttling", "Throttling", True),
        (503, "ServiceUnavailable", "ServiceUnavailable", True),
        (400, "MessageRejected", "MessageRejected", False),
        (400, "MailFromDomainNotVerifiedException", "MailFromDomainNotVerified", False),
        (403, "AccountSuspendedException", "AccountSuspended", True),
    ],
)
async def test_an_answer_of_ses_is_judged_by_the_contract(status: int, kind: str, code: str, retryable: bool) -> None:
    asked: list[dict[str, Any]] = []
    async with answering(status, {"message": "as it said"}, asked, kind) as endpoint:
        with pytest.raises(SendError, match="as it said") as raised:
            await send(endpoint, mail())
    assert (raised.value.code, raised.value.retryable) == (code, retryable)
    assert len(asked) == 1, "retries are the queue's, not the driver's"


async def test_a_server_that_does_not_answer_is_tried_again() -> None:
    asked: list[dict[str, Any]] = []
    async with answering(0, {}, asked) as endpoint:
        with pytest.raises(SendError) as raised:
            await send(endpoint, mail(), "&timeout=200ms")
    assert (raised.value.code, raised.value.retryable, len(asked)) == (None, True, 1)


async def test_without_credentials_no_worker_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="no credentials"):
        await open_sender("ses://eu-west-1").check()
