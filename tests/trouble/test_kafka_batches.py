"""Batch handlers on a real Kafka, with records as other people's producers write them: these come in blocks."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from redrive import Failed, Policy, constant, immediate
from redrive.testing.waiting import until
from redrive.worker import Worker
from tests.servers.kafka import Kafka
from tests.trouble.helpers import letters, working
from tests.trouble.kafka import Topic


async def test_three_of_500_fail_and_the_others_are_done_once(kafka_server: Kafka, tmp_path: Path) -> None:
    topic, done, calls = Topic(kafka_server, partitions=1), Counter[str](), list[int]()
    app = topic.app(tmp_path, batch=500)
    bad = {"3", "77", "499"}
    topic.produce(*[(None, b"%d" % number) for number in range(500)])

    @app.handler(topic.name, batch=500, within="2s", policy=Policy(attempts=3, backoff=immediate()))
    async def store(names: list[str]) -> None:
        calls.append(len(names))
        done.update(name for name in names if name not in bad)
        raise Failed({place: ConnectionError(name) for place, name in enumerate(names) if name in bad})

    async with working(app):
        await topic.until_committed(500)
    assert done == Counter(f"{number}" for number in range(500) if f"{number}" not in bad)
    found = await letters(app)
    assert {letter.message.body.decode(): len(letter.failures) for letter in found} == dict.fromkeys(bad, 3)
    assert sum(calls) == 500 + 2 * 3
    assert calls.count(1) >= 6
    await app.aclose()


async def test_order_by_key_holds_through_failures_and_a_worker_that_joins(kafka_server: Kafka, tmp_path: Path) -> None:
    """What is done twice is done in order the last time."""
    topic, total = Topic(kafka_server, partitions=4), 3000
    records = [(b"key-%d" % (number % 40), b"%d" % number) for number in range(total)]
    topic.produce(*records[: total // 2])
    last: dict[int, list[int]] = defaultdict(list)
    tried: Counter[int] = Counter()
    workers = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        app = topic.app(tmp_path / name, url={"consumer.client.id": name}, batch=100)

        @app.handler(topic.name, batch=100, within="5ms", policy=Policy(attempts=9, backoff=constant("20ms")))
        async def store(numbers: list[int]) -> None:
            tried.update(numbers)
            poisoned = [number for number in numbers if number % 500 == 7 and tried[number] == 1]
            if poisoned:
                raise ConnectionError(f"one of them is {poisoned[0]}")
            failed = {place: n for place, n in enumerate(numbers) if n % 200 == 11 and tried[n] == 1}
            for place, number in enumerate(numbers):
                if place not in failed:
                    last[number % 40].append(number)
            raise Failed({place: ConnectionError(f"not {n}") for place, n in failed.items()})

        workers.append(app)
    async with working(workers[0]):
        await until(lambda: len(tried) > total // 10, what="the first is at work")
        async with working(workers[1]):
            topic.produce(*records[total // 2 : -500])
            await topic.until_shared(one=2, two=2)
            topic.produce(*records[-500:])
            await topic.until_committed(total)
    for key, numbers in last.items():
        order = sorted(set(numbers), key=lambda number: len(numbers) - numbers[::-1].index(number))
        assert order == [number for number in range(total) if number % 40 == key]
    for app in workers:
        assert await letters(app) == []
        await app.aclose()


async def test_a_worker_that_stops_leaves_nothing_to_suspect(kafka_server: Kafka, tmp_path: Path) -> None:
    """What it has fetched and not begun is handed to the next one as if nothing had been."""
    topic, calls = Topic(kafka_server, partitions=1), list[list[str]]()
    topic.produce(*[(None, b"%d" % number) for number in range(300)])
    app = topic.app(tmp_path, batch=50)

    @app.handler(topic.name, batch=50, within="2s")
    async def store(names: list[str]) -> None:
        calls.append(names)
        if len(calls) == 1:
            worker.stop()

    worker = Worker(app, upkeep=False)
    await worker.run()
    await app.aclose()
    assert len(calls) == 1
    async with working(app):
        await topic.until_committed(300)
    assert Counter(name for call in calls for name in call) == Counter(f"{number}" for number in range(300))
    assert all(len(call) > 1 for call in calls), "something was suspected, and ran alone"
    await app.aclose()
