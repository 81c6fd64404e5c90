"""Settings become policy, rate and turns; the API and the console show who has them."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from itertools import groupby
from typing import Any

import pytest
from redis.asyncio import Redis as Client

from redrive.access.actors import Role
from redrive.access.tokens import Tokens
from redrive.admin.api import create_api
from redrive.config.settings import Settings
from redrive.errors import ConfigError
from redrive.forensics.query import Query
from redrive.registry import open_store
from redrive.service import Service
from redrive.systems.email import EmailGateway
from redrive.systems.email.dlq import dlq_url
from redrive.systems.email.gateway import fair_of, policy_of, rate_of
from redrive.systems.email.settings import EmailSettings
from redrive.systems.email.snapshot import Watch
from redrive.testing.clock import START
from redrive.testing.waiting import until
from tests.admin.asking import asking
from tests.systems.email.jobs import job
from tests.systems.email.mailserver import Mailbox
from tests.systems.email.world import dlq_has, is_drained, running, with_email


def test_the_defaults_are_the_contracts() -> None:
    policy, rate, fair = policy_of(EmailSettings()), rate_of(EmailSettings()), fair_of(EmailSettings())
    assert (policy.attempts, policy.ttl, policy.again.attempts) == (5, timedelta(days=7), 0)
    assert rate is not None
    assert (rate.limit, rate.per, rate.adaptive) == (100, timedelta(minutes=1), False)
    assert fair is not None
    assert (fair.in_a_row, fair.weights) == (3, {})
    assert (EmailSettings().ttl, EmailSettings().concurrency, EmailSettings().dlq_max_size) == (
        timedelta(days=1),
        5,
        10_000,
    )


def test_what_can_be_changed_is() -> None:
    email = EmailSettings(adaptive=True, cooldown=timedelta(hours=1), cooldown_times=3, rate=7, batch=1)
    rate, policy = rate_of(email), policy_of(email)
    assert rate is not None
    assert (rate.limit, rate.adaptive) == (7, True)
    assert policy.again.attempts == 3
    assert fair_of(EmailSettings(fair=False)) is None
    assert rate_of(EmailSettings(rate=None)) is None


def test_a_company_has_the_weight_of_its_tier_or_its_own() -> None:
    fair = fair_of(EmailSettings(tiers=("gold=3", "free=0.5"), weights=("acme=gold", "a=b=2", "tiny=free")))
    assert fair is not None
    assert fair.weights == {"acme": 3.0, "a=b": 2.0, "tiny": 0.5}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"weights": ("acme",)}, "is no pair"),
        ({"weights": ("acme=",)}, "is no pair"),
        ({"tiers": ("gold=3",), "weights": ("acme=glod",)}, "did you mean 'gold'?"),
        ({"tiers": ("gold=many",)}, "neither a number nor a tier"),
        ({"weights": ("acme=0",)}, "0.001 to 1000"),
    ],
)
def test_weights_that_are_none_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        fair_of(EmailSettings(**changes))
    assert says in str(refused.value)


def test_a_queue_without_turns_says_so_when_a_worker_starts() -> None:
    gateway = EmailGateway(Settings(), transport="memory://", store="memory://")
    with pytest.raises(ConfigError, match="use one that can, such as redis://"):
        gateway.app.context(gateway.app.handlers["email:send"])


async def test_the_dlq_is_a_store_with_a_url_of_its_own(settings: Settings, mailbox: Mailbox, client: Client) -> None:
    mailbox.always["ana@example.com"] = "550 no"
    async with running(settings) as gateway:
        await gateway.add(job())
        await until(dlq_has(client, 1))
        (letter,) = (await gateway.app.store.letters.search(Query())).letters
    store = open_store(dlq_url(settings.of(EmailSettings)))
    try:
        assert await store.letters.get(letter.id) == letter
    finally:
        await store.aclose()


async def test_no_company_has_more_than_three_in_a_row_while_another_waits(
    settings: Settings, mailbox: Mailbox
) -> None:
    settings = with_email(settings, rate=None, concurrency=1)
    async with EmailGateway(settings) as producer:
        for company in ("a", "b", "c"):
            await producer.add_all([job(f"{company}-{n}", company, to=f"{company}@e.org") for n in range(12)])
    async with running(settings) as gateway:
        await until(lambda: len(mailbox.delivered) == 36)
        await until(lambda: is_drained(gateway))
    runs = [len(list(run)) for _, run in groupby(mailbox.recipients)]
    assert max(runs) <= 3
    assert len(runs) >= 12


async def test_the_api_shows_who_has_the_turns(settings: Settings, mailbox: Mailbox) -> None:
    async with running(settings) as gateway:
        await gateway.add_all([job("o-1", "acme"), job("o-2", "umbrella")])
        await until(lambda: len(mailbox.delivered) == 2)
        await until(lambda: is_drained(gateway))
        tokens = Tokens(gateway.app.store.documents, gateway.app.clock)
        _, token = await tokens.create("viewer", Role.VIEWER)
        api = create_api(Service(gateway.app), tokens=tokens)
        async with asking(api) as nobody, asking(api, token) as viewer:
            refused = await nobody.get("/api/fairness")
            answer = await viewer.get("/api/fairness")
    assert refused.status_code == 401
    ((source, tenants),) = [(one["source"], one["tenants"]) for one in answer.json()["sources"]]
    assert source == "email:send"
    assert {one["tenant"]: one["total_processed"] for one in tenants} == {"acme": 1, "umbrella": 1}


async def test_what_others_wrote_into_the_dlq_is_counted_too(settings: Settings, client: Client) -> None:
    await client.zadd("email:send:dlq", {b"\xff not json": START.timestamp() * 1000, b'{"companyId": "acme"}': 1.0})
    async with EmailGateway(settings) as gateway:
        watch = Watch(gateway.app, settings.of(EmailSettings))
        snapshot = await watch.snapshot()
        await watch.aclose()
    assert (snapshot.size, dict(snapshot.companies)) == (2, {"unknown": 1, "acme": 1})


@pytest.mark.parametrize("statement", ["import redrive.systems.email", "import redrive.systems.email.commands"])
def test_importing_it_imports_no_driver(statement: str) -> None:
    program = f"{statement}\nimport sys\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    drivers = {"redis", "aiosmtplib", "aiobotocore", "botocore", "prometheus_client", "litestar", "uvicorn"}
    assert drivers.isdisjoint(done.stdout.split())
