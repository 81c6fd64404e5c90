"""Every pool of Celery on Redis and on RabbitMQ: what dies is a letter, and its replay resolves it."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive.model import State
from tests.integrations.celery.world import Shop, touch

POOLS = ["solo", "threads", "gevent"]


@pytest.mark.parametrize(
    ("pool", "server"), [*((pool, name) for name in ("redis", "rabbitmq") for pool in POOLS), ("prefork", "redis")]
)
async def test_a_task_fails_retries_and_is_replayed_in_every_pool(
    pool: str, server: str, request: pytest.FixtureRequest, tmp_path: Path, mended: Path
) -> None:
    """Prefork on RabbitMQ is in test_letters.py."""
    shop = Shop(tmp_path, request.getfixturevalue(f"{server}_server").url)
    worker = shop.start(pool)
    try:
        failed, flaky = shop.send("charge", str(mended), "ä" * 10, priority=6), shop.send("flaky", str(mended))
        letters = [await shop.letter(failed), await shop.letter(flaky)]
        assert [failure.attempt for failure in letters[1].failures] == [1, 2, 3]
        unknown = await shop.letter(shop.client.send_task("somebody.elses").id)
        assert unknown.last.type == "celery.exceptions.NotRegistered"
        await shop.replay(letters[0].id)
        await shop.letter(failed, lambda letter: letter.state is State.EXHAUSTED)
        touch(mended)
        await shop.replay(*(letter.id for letter in letters))
        for id in (failed, flaky):
            await shop.resolved(id)
        if pool == "gevent":  # its courier is a process of its own, and ends with it
            worker.stop()
            assert worker.process.returncode == 0, worker.said
    finally:
        shop.close()
