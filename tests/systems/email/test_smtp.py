"""E-mail over a real SMTP server, and what its refusals become."""

from __future__ import annotations

import asyncio
import email
import email.policy
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from redrive.errors import ConfigError
from redrive.systems.email import Mail, Sender, SendError, open_sender, read_job
from tests.systems.email.jobs import written
from tests.systems.email.mailserver import Mailbox, mail_server

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def mail(**changes: Any) -> Mail:
    job = read_job(written(**changes))
    return Mail(job, job.recipients, AT)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Sender]:
    sender = open_sender(url)
    try:
        yield sender
    finally:
        await sender.aclose()


async def refusal(url: str, one: Mail) -> SendError:
    async with opened(url) as sender:
        with pytest.raises(SendError) as raised:
            await sender.send(one)
    return raised.value


async def test_an_email_arrives_whole(mailbox: Mailbox, smtp_url: str) -> None:
    async with opened(smtp_url) as sender:
        await sender.send(
            mail(
                to=["Ana Ć <ana@example.com>", "bob@example.com"],
                cc=["cc@example.com"],
                bcc=["secret@example.com"],
                subject="Olá, está a caminho",
                text="Olá",
                html="<p>Olá</p>",
                replyTo="help@example.org",
                headers={"X-Campaign": "spring"},
            )
        )
    ((sender_address, recipients, content),) = mailbox.delivered
    assert sender_address == "shop@example.org"
    assert recipients == ("ana@example.com", "bob@example.com", "cc@example.com", "secret@example.com")
    read = email.message_from_bytes(content, policy=email.policy.default)
    assert read["Subject"] == "Olá, está a caminho"
    assert read["Message-ID"] == "<o-1@example.org>"
    assert (read["From"], read["Reply-To"], read["X-Campaign"]) == (
        "Shop <shop@example.org>",
        "help@example.org",
        "spring",
    )
    assert b"secret@example.com" not in content
    assert [part.get_content().strip() for part in read.iter_parts()] == ["Olá", "<p>Olá</p>"]


async def test_connections_are_used_again(mailbox: Mailbox, smtp_url: str) -> None:
    async with opened(smtp_url) as sender:
        for number in range(5):
            await sender.send(mail(outbox=f"o-{number}"))
    assert (len(mailbox.delivered), mailbox.connections) == (5, 1)


async def test_at_once_there_are_as_many_connections_as_needed(mailbox: Mailbox, smtp_url: str) -> None:
    async with opened(smtp_url) as sender:
        await asyncio.gather(*(sender.send(mail(outbox=f"o-{number}")) for number in range(8)))
    assert len(mailbox.delivered) == 8
    assert mailbox.connections <= 8


async def test_a_connection_that_the_server_has_closed_is_no_failure(mailbox: Mailbox) -> None:
    async with mail_server(mailbox) as port:
        sender = open_sender(f"smtp://127.0.0.1:{port}")
        await sender.send(mail())
    async with mail_server(mailbox, port=port):
        await sender.send(mail(outbox="o-2"))
        await sender.aclose()
    assert (len(mailbox.delivered), mailbox.connections) == (2, 2)


@pytest.mark.parametrize(
    ("answer", "code", "retryable"),
    [
        ("421 closing", "421", True),
        ("450 try later", "450", True),
        ("452 full", "452", True),
        ("454 unknown to the contract", "454", True),
        ("500 what", "500", False),
        ("550 Mailbox not found", "550", False),
        ("551 unknown to the contract", "551", False),
        ("554 no", "554", False),
    ],
)
async def test_a_refused_recipient_has_the_servers_code(
    mailbox: Mailbox, smtp_url: str, answer: str, code: str, retryable: bool
) -> None:
    mailbox.always["ana@example.com"] = answer
    error = await refusal(smtp_url, mail())
    assert (error.code, error.retryable, error.accepted) == (code, retryable, ())
    assert str(error) == f"SMTP {code}: {answer[4:]} <ana@example.com>"


@pytest.mark.parametrize(("answer", "retryable"), [("451 local error", True), ("554 Transaction failed", False)])
async def test_refused_content_is_delivered_to_nobody(
    mailbox: Mailbox, smtp_url: str, answer: str, retryable: bool
) -> None:
    mailbox.data.append(answer)
    error = await refusal(smtp_url, mail(to=["a@e.org", "b@e.org"]))
    assert (error.code, error.retryable, error.accepted) == (answer[:3], retryable, ())
    assert str(error) == f"SMTP {answer[:3]}: {answer[4:]}"
    assert mailbox.delivered == []


async def test_who_was_accepted_is_told_when_others_were_not(mailbox: Mailbox, smtp_url: str) -> None:
    mailbox.always |= {"b@e.org": "550 no such user", "c@e.org": "450 later"}
    error = await refusal(smtp_url, mail(to=["a@e.org", "b@e.org", "c@e.org"]))
    assert (error.code, error.retryable, error.accepted) == ("450", True, ("a@e.org",))
    assert mailbox.recipients == ["a@e.org"]


async def test_a_connection_that_is_dropped_is_tried_again(mailbox: Mailbox, smtp_url: str) -> None:
    mailbox.data.append("drop")
    error = await refusal(smtp_url, mail())
    assert (error.code, error.retryable) == (None, True)


async def test_a_server_that_hangs_is_left_after_the_timeout(mailbox: Mailbox, smtp_url: str) -> None:
    mailbox.data.append("hang")
    error = await refusal(smtp_url.replace("timeout=10s", "timeout=200ms"), mail())
    assert (error.code, error.retryable) == (None, True)
    assert mailbox.hanging.is_set()


async def test_a_cancelled_attempt_leaves_no_half_used_connection(mailbox: Mailbox, smtp_url: str) -> None:
    mailbox.data.append("hang")
    async with opened(smtp_url) as sender:
        attempt = asyncio.create_task(sender.send(mail()))
        await mailbox.hanging.wait()
        attempt.cancel()
        await asyncio.gather(attempt, return_exceptions=True)
        await sender.send(mail(outbox="o-2"))
    assert (len(mailbox.delivered), mailbox.connections) == (1, 2)


async def test_no_server_at_all_is_tried_again() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"smtp://127.0.0.1:{closed.getsockname()[1]}"
        error = await refusal(url, mail())
        assert (error.code, error.retryable) == (None, True)
        async with opened(url) as sender:
            await sender.check()  # it may come


async def test_an_address_that_the_server_cannot_have_is_final(smtp_url: str) -> None:
    error = await refusal(smtp_url, mail(to="josé@example.com"))
    assert (error.code, error.retryable) == ("553", False)
    assert "SMTPUTF8" in str(error)


async def test_a_user_logs_in(mailbox: Mailbox) -> None:
    async with (
        mail_server(mailbox, auth=True) as port,
        opened(f"smtp://gateway:s3cret%26%2F@127.0.0.1:{port}") as sender,
    ):
        await sender.check()
        await sender.send(mail())
    assert (len(mailbox.delivered), mailbox.connections) == (1, 1)


async def test_a_wrong_password_stops_the_worker_before_the_first_job(mailbox: Mailbox) -> None:
    async with mail_server(mailbox, auth=True) as port, opened(f"smtp://gateway:wrong@127.0.0.1:{port}") as sender:
        with pytest.raises(ConfigError, match="will not have us: SMTP 535"):
            await sender.check()


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of this machine that vouches for itself, its key beside it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    file = tmp_path_factory.mktemp("tls") / "ca.pem"
    file.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    file.with_name("key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
    return file


@pytest.fixture
def certified(ca: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(ca, ca.with_name("key.pem"))
    return context


async def test_starttls_where_it_is_offered(mailbox: Mailbox, certified: ssl.SSLContext, ca: Path) -> None:
    async with (
        mail_server(mailbox, starttls=certified) as port,
        opened(f"smtp://127.0.0.1:{port}?starttls=required&ca={ca}") as sender,
    ):
        await sender.send(mail())
    assert mailbox.encrypted == [True]


async def test_starttls_that_is_required_and_not_offered_sends_nothing(mailbox: Mailbox, smtp_url: str) -> None:
    error = await refusal(f"{smtp_url}&starttls=required", mail())
    assert "STARTTLS" in str(error).upper()
    assert error.retryable, "a server that lost its certificate must not bury the queue"
    assert mailbox.delivered == []
    async with opened(f"{smtp_url}&starttls=required") as sender:
        with pytest.raises(ConfigError, match="will not have us"):
            await sender.check()


async def test_tls_from_the_first_byte(mailbox: Mailbox, certified: ssl.SSLContext, ca: Path) -> None:
    async with mail_server(mailbox, tls=certified) as port, opened(f"smtps://127.0.0.1:{port}?ca={ca}") as sender:
        await sender.send(mail())
    assert len(mailbox.delivered) == 1


async def test_a_certificate_that_nobody_vouches_for_is_refused(mailbox: Mailbox, certified: ssl.SSLContext) -> None:
    async with mail_server(mailbox, tls=certified) as port:
        error = await refusal(f"smtps://127.0.0.1:{port}", mail())
        assert error.retryable
        async with opened(f"smtps://127.0.0.1:{port}?verify=no") as sender:
            await sender.send(mail())
    assert len(mailbox.delivered) == 1


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("localhost:25", "write it like smtp://"),
        ("stmp://localhost", "did you mean 'smtp'?"),
        ("smtp://", "no host"),
        ("smtp://h?starttls=maybe", "auto, required, never"),
        ("smtp://h?timout=3s", "did you mean 'timeout'?"),
        ("smtp://h?timeout=3", "write it with a unit"),
        ("smtp://h?verify=perhaps", "yes or no"),
        ("smtp://h?ca=/nowhere.pem", "cannot be read"),
        ("smtp://h:99999", "Port out of range"),
        ("ses://", "no region"),
        ("ses://eu-west-1?endpint=x", "did you mean 'endpoint'?"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_with_the_reason(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=r"sender|starttls|duration|verify|ca=") as refused:
        open_sender(url)
    assert says in str(refused.value)
