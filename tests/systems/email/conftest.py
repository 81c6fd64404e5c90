from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from redis import Redis as SyncClient
from redis.asyncio import Redis as Client

from redrive.config.load import read
from redrive.config.settings import Settings, Upkeep
from redrive.model import Letter, Reason
from redrive.systems.email import EmailGateway
from redrive.systems.email.settings import EmailSettings
from redrive.testing.builders import make_failure, make_letter, make_message
from tests.cli.world import Shell
from tests.servers.redis import Redis
from tests.systems.email.jobs import written
from tests.systems.email.mailserver import Mailbox, mail_server
from tests.systems.email.world import QUICK


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


@pytest.fixture
async def smtp_url(mailbox: Mailbox) -> AsyncIterator[str]:
    async with mail_server(mailbox) as port:
        yield f"smtp://127.0.0.1:{port}?timeout=10s"


@pytest.fixture
async def client(redis_server: Redis) -> AsyncIterator[Client]:
    """A database of the test's own in the shared server."""
    url = redis_server.url.removesuffix("/0") + "/9"
    one = Client.from_url(url)
    await one.flushdb()
    yield one
    await one.flushdb()
    await one.aclose()


@pytest.fixture
def settings(redis_server: Redis, client: Client, smtp_url: str, tmp_path: Path) -> Settings:
    url = redis_server.url.removesuffix("/0") + "/9"
    email = EmailSettings(
        redis=url, sender=smtp_url, base_delay=QUICK, max_delay=QUICK, dlq_export=str(tmp_path / "trimmed.jsonl")
    )
    return Settings(sections=(email,), upkeep=Upkeep(interval=QUICK, prune_every=QUICK))


@pytest.fixture
def redis_url(redis_server: Redis) -> Iterator[str]:
    url = redis_server.url.removesuffix("/0") + "/10"
    with SyncClient.from_url(url) as client:
        client.flushdb()
        yield url
        client.flushdb()


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redis_url: str) -> Shell:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "redrive.toml").write_text(f'[email]\nredis = "{redis_url}"\nbase_delay = "20ms"\nmax_delay = "20ms"\n')
    return Shell(tmp_path)


def dead(number: int, *, code: str, company: str, age: timedelta = timedelta(hours=1)) -> Letter:
    at = datetime.now(UTC) - age
    message = make_message(id=f"o-{number}", source="email:send", body=written(outbox=f"o-{number}"), tenant=company)
    failure = make_failure(code=code, message=f"SMTP {code}: no", attempt=5, at=at)
    return make_letter(message, failure, at=at, reason=Reason.ATTEMPTS)


@pytest.fixture
def letters(shell: Shell) -> list[Letter]:
    """Three causes, three companies; one of them is old."""
    made = [dead(number, code="421", company="acme") for number in range(4)]
    made += [dead(4, code="550", company="acme"), dead(5, code="554", company="umbrella")]
    made.append(dead(6, code="550", company="old", age=timedelta(days=31)))
    asyncio.run(_recorded(made))
    return made


async def _recorded(letters: list[Letter]) -> None:
    async with EmailGateway(read(Path("redrive.toml")).settings) as gateway:
        await gateway.app.store.letters.record(letters)
