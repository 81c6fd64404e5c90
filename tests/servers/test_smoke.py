"""Each server, used for real by the client its users use."""

import asyncio
import base64
import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import aio_pika
import httpx
import psycopg
import pytest
import redis
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from opensearchpy import OpenSearch as OpenSearchClient
from playwright.sync_api import sync_playwright
from pymongo import MongoClient
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.servers.chromium import Chromium
from tests.servers.consul import Consul
from tests.servers.elasticmq import ElasticMQ
from tests.servers.fixtures import StartsMonitor, StartsServer
from tests.servers.kafka import Kafka
from tests.servers.keycloak import Keycloak
from tests.servers.keycloak_realm import AUDIENCE, CLI, SOURCES
from tests.servers.mongodb import MongoDB
from tests.servers.opensearch import OpenSearch
from tests.servers.postgresql import PostgreSQL, Standby
from tests.servers.prometheus import TELLS_NOBODY, Alertmanager, Prometheus
from tests.servers.rabbitmq import GUEST, IS_4, RabbitMQ
from tests.servers.redis import Redis
from tests.servers.toxiproxy import Toxiproxy
from tests.servers.waiting import wait_until
from tests.trouble.sqs import others_client

NO_RETRY = Retry(NoBackoff(), 0)


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with httpx.Client(trust_env=False, timeout=30) as client:
        yield client


def test_redis_gives_back_what_it_was_given(redis_server: Redis) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.set("letter", b"\x00body")
        assert client.get("letter") == b"\x00body"


def test_redis_keeps_its_keys_through_kill_9(start_server: StartsServer) -> None:
    server = start_server(Redis)
    with redis.Redis.from_url(server.url) as client:
        client.mset({f"letter:{number}": number for number in range(1000)})
        server.kill9()
        server.start()
        assert client.dbsize() == 1000


def test_rabbitmq_confirms_and_delivers(rabbitmq_server: RabbitMQ) -> None:
    async def round_trip() -> bytes:
        async with await aio_pika.connect(rabbitmq_server.url) as connection:
            channel = await connection.channel(publisher_confirms=True)
            queue = await channel.declare_queue(f"smoke-{uuid4()}", durable=True)
            await channel.default_exchange.publish(aio_pika.Message(b"letter"), routing_key=queue.name)
            async with (await queue.get()).process() as message:
                return message.body

    assert asyncio.run(round_trip()) == b"letter"


def test_rabbitmq_management_and_metrics_answer(rabbitmq_server: RabbitMQ, http: httpx.Client) -> None:
    overview = http.get(f"{rabbitmq_server.management_url}/api/overview", auth=GUEST).raise_for_status().json()
    assert overview["rabbitmq_version"].startswith("4.0." if IS_4 else "3.10.")
    assert "rabbitmq_identity_info" in http.get(rabbitmq_server.metrics_url).text


def test_kafka_delivers_on_one_node(kafka_server: Kafka) -> None:
    assert _kafka_round_trip(kafka_server, replicas=1) == b"letter"


def test_kafka_delivers_on_three_replicas(kafka_cluster: Kafka) -> None:
    assert _kafka_round_trip(kafka_cluster, replicas=3) == b"letter"


def test_kafka_delivers_with_one_of_three_nodes_killed(start_server: StartsServer) -> None:
    cluster = start_server(lambda: Kafka(size=3))
    topic = _create_topic(cluster, replicas=3)
    cluster.nodes[2].kill9()
    _produce(cluster, topic)
    cluster.nodes[2].start()
    assert _consume(cluster, topic) == b"letter"


def _kafka_round_trip(kafka: Kafka, replicas: int) -> bytes | None:
    topic = _create_topic(kafka, replicas)
    _produce(kafka, topic)
    return _consume(kafka, topic)


def _create_topic(kafka: Kafka, replicas: int) -> str:
    topic = f"smoke-{uuid4()}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=replicas)])[topic].result(60)
    return topic


def _produce(kafka: Kafka, topic: str) -> None:
    """Returns when all in-sync replicas have the message; a delivery that fails is an error."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all"})
    producer.produce(topic, b"letter", on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(90) == 0
    assert failures == []


def _consume(kafka: Kafka, topic: str) -> bytes | None:
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        message: Message | None = consumer.poll(90)
        assert message is not None
        assert message.error() is None
        return message.value()
    finally:
        consumer.close()


def test_mongodb_finds_what_was_inserted(mongodb_server: MongoDB) -> None:
    with MongoClient[dict[str, Any]](mongodb_server.url) as client:
        letters = client.smoke.letters
        letters.insert_one({"_id": "a", "state": "pending"})
        assert letters.find_one({"state": "pending"}) == {"_id": "a", "state": "pending"}


def test_mongodb_replica_set_rolls_a_transaction_back_and_commits_one(mongodb_replica_set: MongoDB) -> None:
    with MongoClient[dict[str, Any]](mongodb_replica_set.url) as client, client.start_session() as session:
        letters = client.smoke.create_collection(f"letters-{uuid4()}")
        session.start_transaction()
        letters.insert_one({"_id": "rolled back"}, session=session)
        session.abort_transaction()
        with session.start_transaction():
            letters.insert_one({"_id": "kept"}, session=session)
        assert list(letters.find()) == [{"_id": "kept"}]


def test_opensearch_indexes_searches_and_updates_by_script(opensearch_server: OpenSearch) -> None:
    with OpenSearchClient(opensearch_server.url, timeout=60) as client:
        client.index(index="letters", id="1", body={"error": "connection refused", "attempts": 1}, refresh=True)
        found = client.search(index="letters", body={"query": {"match": {"error": "refused"}}})
        assert [hit["_id"] for hit in found["hits"]["hits"]] == ["1"]
        script = {"lang": "painless", "source": "ctx._source.attempts += params.more", "params": {"more": 2}}
        client.update(index="letters", id="1", body={"script": script})
        assert client.get(index="letters", id="1")["_source"]["attempts"] == 3


def test_opensearch_has_the_modules_a_store_needs(opensearch_server: OpenSearch) -> None:
    with OpenSearchClient(opensearch_server.url, timeout=60) as client:
        client.index(index="before", id="1", body={"state": "pending"}, refresh=True)
        client.reindex(body={"source": {"index": "before"}, "dest": {"index": "after"}}, refresh=True)
        moved = client.update_by_query(index="after", body={"script": {"source": "ctx._source.state = 'archived'"}})
        assert moved["updated"] == 1
        tokens = client.indices.analyze(body={"analyzer": "english", "text": "failing messages"})["tokens"]
        assert [token["token"] for token in tokens] == ["fail", "messag"]


def test_consul_keeps_keys_and_services(consul_server: Consul, http: httpx.Client) -> None:
    http.put(f"{consul_server.url}/v1/kv/redrive/pause", content=b"yes").raise_for_status()
    assert http.get(f"{consul_server.url}/v1/kv/redrive/pause?raw").content == b"yes"
    service = {"Name": "mailer", "ID": "mailer-1", "Port": 2525}
    http.put(f"{consul_server.url}/v1/agent/service/register", json=service).raise_for_status()
    registered = http.get(f"{consul_server.url}/v1/agent/services").json()
    assert registered["mailer-1"]["Port"] == 2525


def test_prometheus_scrapes_a_real_target(
    prometheus_server: StartsMonitor[Prometheus], rabbitmq_server: RabbitMQ, http: httpx.Client
) -> None:
    target = f"127.0.0.1:{rabbitmq_server.metrics_port}"
    job = {"job_name": "rabbitmq", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}
    server = prometheus_server(json.dumps({"scrape_configs": [job]}))
    subprocess.run(["promtool", "check", "config", server.config], check=True, capture_output=True)
    wait_until(partial(_is_scraped, http, server, "rabbitmq_identity_info"), "a first scrape of RabbitMQ")


def _is_scraped(http: httpx.Client, server: Prometheus, metric: str) -> bool:
    answer = http.get(f"{server.url}/api/v1/query", params={"query": metric}).raise_for_status().json()
    return bool(answer["data"]["result"])


def test_alertmanager_holds_an_alert(alertmanager_server: StartsMonitor[Alertmanager], http: httpx.Client) -> None:
    server = alertmanager_server(TELLS_NOBODY)
    subprocess.run(["amtool", "check-config", server.config], check=True, capture_output=True)
    ends = datetime.now(UTC) + timedelta(hours=1)
    alert = {"labels": {"alertname": "LettersPiling", "queue": "mail"}, "endsAt": ends.isoformat()}
    http.post(f"{server.url}/api/v2/alerts", json=[alert]).raise_for_status()
    held = http.get(f"{server.url}/api/v2/alerts").json()
    assert [entry["labels"]["alertname"] for entry in held] == ["LettersPiling"]


def test_toxiproxy_cuts_and_mends_a_connection(toxiproxy_server: Toxiproxy, redis_server: Redis) -> None:
    proxy = toxiproxy_server.proxy(redis_server.address)
    with redis.Redis(port=proxy.port, retry=NO_RETRY) as client:
        assert client.ping()
        proxy.cut()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        proxy.mend()
        assert client.ping()


def test_toxiproxy_lets_nothing_through_while_a_toxic_is_in(toxiproxy_server: Toxiproxy, redis_server: Redis) -> None:
    proxy = toxiproxy_server.proxy(redis_server.address)
    proxy.add("timeout", timeout=0)
    with (
        redis.Redis(port=proxy.port, socket_timeout=0.2, retry=NO_RETRY) as hasty,
        pytest.raises(redis.TimeoutError),
    ):
        hasty.ping()
    proxy.remove("timeout")
    with redis.Redis(port=proxy.port) as patient:
        assert patient.ping()


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<title>Redrive</title><h1 id=state></h1><script>state.textContent = 'alive'</script>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def page_url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Page) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_chromium_opens_a_page_and_runs_its_script(chromium: Chromium, page_url: str, tmp_path: Path) -> None:
    shot = tmp_path / "page.png"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**chromium.launch_options)
        page = browser.new_page()
        page.goto(page_url)
        assert page.title() == "Redrive"
        assert page.text_content("#state") == "alive"
        page.screenshot(path=shot)
        browser.close()
    assert shot.read_bytes().startswith(b"\x89PNG")


def test_postgresql_keeps_what_it_committed_through_a_crash(start_server: StartsServer) -> None:
    server = start_server(PostgreSQL)
    server.sql("CREATE TABLE letters (id text); INSERT INTO letters VALUES ('kept')")
    server.kill9()
    server.start()
    assert server.sql("SELECT id FROM letters") == "kept"


def test_a_standby_of_postgresql_has_what_the_primary_has_and_can_be_promoted(start_server: StartsServer) -> None:
    primary = start_server(lambda: PostgreSQL(lines=("synchronous_standby_names = 'standby'",)))
    standby = start_server(lambda: Standby(primary))
    primary.sql("CREATE TABLE letters AS SELECT 'kept' AS id")
    primary.kill9()
    standby.promote()
    standby.sql("INSERT INTO letters VALUES ('later')")
    assert standby.sql("SELECT id FROM letters ORDER BY id").split() == ["kept", "later"]


def test_pgbouncer_gives_each_transaction_some_connection(pgbouncer_url: str) -> None:
    with psycopg.connect(pgbouncer_url) as one, psycopg.connect(pgbouncer_url) as other:
        one.execute("CREATE TABLE letters (id text)")
        one.commit()
        assert other.execute("SELECT count(*) FROM letters").fetchone() == (0,)


async def test_elasticmq_gives_back_what_it_was_given_when_time_has_passed(elasticmq_server: ElasticMQ) -> None:
    async with others_client(elasticmq_server) as client:
        queue = (await client.create_queue(QueueName=f"smoke-{uuid4().hex}"))["QueueUrl"]
        await client.send_message(QueueUrl=queue, MessageBody="letter", DelaySeconds=600)
        assert not (await client.receive_message(QueueUrl=queue)).get("Messages")
        elasticmq_server.let_pass(timedelta(minutes=11))
        [message] = (await client.receive_message(QueueUrl=queue))["Messages"]
        assert message["Body"] == "letter"


def test_keycloak_signs_who_somebody_is(keycloak_server: Keycloak, http: httpx.Client) -> None:
    claims = _claims(keycloak_server.access_token("olaf"))
    assert claims["iss"] == keycloak_server.issuer
    assert AUDIENCE in claims["aud"]
    assert "redrive-operator" in claims["roles"]
    assert claims[SOURCES] == ["mail.*"]
    started = http.post(
        http.get(f"{keycloak_server.issuer}/.well-known/openid-configuration").json()["device_authorization_endpoint"],
        data={"client_id": CLI, "scope": "openid"},
    )
    assert started.json()["user_code"]


def test_keycloak_takes_a_role_and_gives_it_back(keycloak_server: Keycloak) -> None:
    keycloak_server.take_role("vera", "redrive-viewer")
    assert "redrive-viewer" not in _claims(keycloak_server.access_token("vera")).get("roles", ())
    keycloak_server.give_role("vera", "redrive-viewer")
    assert "redrive-viewer" in _claims(keycloak_server.access_token("vera"))["roles"]


def _claims(token: str) -> dict[str, Any]:
    body = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return found
