"""One address for the metrics and the health of all processes."""

from __future__ import annotations

import os
import signal
import urllib.error
from pathlib import Path

import pytest

from redrive.processes.merge import Family, lasting, merged, packed, unpacked
from redrive.telemetry.metrics import rendered
from tests.processes.conftest import Start
from tests.processes.world import SOON, Run, fetched, handled, send
from tests.servers.waiting import wait_until

DONE = 'redrive_messages_total{outcome="done",source="orders"}'


def _wait_for(run: Run, sample: str, value: float) -> None:
    wait_until(lambda: run.scraped().get(sample) == value, f"{sample} {value}", SOON)


def test_what_all_of_them_did_is_one_number_and_stays_when_one_dies(shop: Path, start: Start) -> None:
    run = start("run", "shop:app", "--processes", "2", "--metrics-port", "0")
    first, second = run.pids(2)
    sent = 0
    while len({pid for pids in handled(shop).values() for pid in pids}) < 2:  # until both had some
        send(shop, "orders", *range(sent, sent + 50))
        sent += 50
        _wait_for(run, DONE, sent)
    found = run.scraped()
    assert found['redrive_process_up{process="1"}'] == found['redrive_process_up{process="2"}'] == 1
    assert found['redrive_attempt_seconds_count{source="orders"}'] == sent
    assert found["redrive_stats_up"] == 1
    os.kill(first, signal.SIGKILL)
    _wait_for(run, 'redrive_process_restarts_total{process="1"}', 1)
    os.kill(second, signal.SIGTERM)
    _wait_for(run, 'redrive_process_restarts_total{process="2"}', 1)
    assert run.scraped()[DONE] == sent
    send(shop, "orders", sent)
    _wait_for(run, DONE, sent + 1)
    assert run.end(signal.SIGTERM) == 0


def test_health_is_that_of_all(shop: Path, start: Start) -> None:
    run = start("run", "shop:app", "--processes", "2", "--metrics-port", "0", REDRIVE_PROCESSES_PAUSE="1h")
    _, second = run.pids(2)
    ready = '{"status":"ok","checks":{"store":"ok","transports.default":"ok","processes":"ok"}}'
    wait_until(lambda: fetched(f"{run.url}/readyz") == ready, "readiness", SOON)
    os.kill(second, signal.SIGKILL)
    run.wait("process_died")
    with pytest.raises(urllib.error.HTTPError, match="503") as refused:
        fetched(f"{run.url}/readyz")
    assert '"processes":"1 of 2 run"' in refused.value.read().decode()
    refused.value.close()
    assert '"status":"ok"' in fetched(f"{run.url}/healthz")
    assert run.scraped()['redrive_process_up{process="2"}'] == 0
    assert run.end(signal.SIGTERM) == 0


def test_others_need_a_token_that_the_store_knows(shop: Path, start: Start) -> None:
    made = start("token", "create", "--role", "viewer", "--name", "prometheus")
    assert made.end() == 0
    token = made.said.split()[0]
    run = start("run", "shop:app", "--processes", "2", "--metrics-port", "0", "--metrics-host", "0.0.0.0")
    run.pids(2)
    url = run.url.replace("0.0.0.0", "127.0.0.1")
    for wrong in ("", f"{token}x"):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            fetched(f"{url}/metrics", wrong)
    assert "redrive_process_up" in fetched(f"{url}/metrics", token)
    assert run.end(signal.SIGTERM) == 0


def test_while_nobody_runs_who_knows_tokens_none_is_let_in(shop: Path, start: Start) -> None:
    shop.joinpath("shop.py").write_text("import os\nos._exit(7)\n")
    words = ("--metrics-port", "0", "--metrics-host", "0.0.0.0")
    run = start("run", "shop:app", "--processes", "2", *words, REDRIVE_PROCESSES_PAUSE="1h")
    run.wait("process_died")
    url = run.url.replace("0.0.0.0", "127.0.0.1")
    with pytest.raises(urllib.error.HTTPError, match="503"):
        fetched(f"{url}/metrics", f"rdr_abcdefghjk_{'x' * 43}")
    assert run.end(signal.SIGTERM) == 0


def test_a_port_that_is_taken_starts_nothing(shop: Path, start: Start) -> None:
    run = start("run", "shop:app", "--processes", "1", "--metrics-port", "0")
    port = run.url.rpartition(":")[2]
    other = start("run", "shop:app", "--processes", "2", "--metrics-port", port)
    assert other.end() == 2
    assert f"port {port} on 127.0.0.1 is in use" in other.other
    assert other.lines == []
    run.pids(1)
    assert run.end(signal.SIGTERM) == 0


# -- merging -----------------------------------------------------------------------------------------------------------


def _family(name: str, kind: str, *samples: tuple[str, dict[str, str], float]) -> Family:
    return Family(name, kind, "about it", [(sample, tuple(labels.items()), value) for sample, labels, value in samples])


def test_counters_and_histograms_are_added_and_gauges_are_not() -> None:
    one = [
        _family("done", "counter", ("done_total", {"a": "x"}, 3.0), ("done_created", {"a": "x"}, 20.0)),
        _family("open", "gauge", ("open", {"b": "y"}, 1.0)),
        _family("took", "histogram", ("took_bucket", {"le": "1"}, 2.0), ("took_sum", {}, 0.5)),
    ]
    two = [
        _family("done", "counter", ("done_total", {"a": "x"}, 4.0), ("done_created", {"a": "x"}, 10.0)),
        _family("done", "counter", ("done_total", {"a": "z"}, 1.0)),
        _family("open", "gauge", ("open", {"b": "y"}, 0.0)),
        _family("took", "histogram", ("took_bucket", {"le": "1"}, 5.0), ("took_sum", {}, 0.25)),
    ]
    text = rendered(merged([one, two])).decode()
    for line in ('done_total{a="x"} 7.0', 'done_total{a="z"} 1.0', 'open{b="y"} 1.0', 'took_bucket{le="1"} 7.0'):
        assert line in text.splitlines()
    assert "took_sum 0.75" in text
    assert text.count("# TYPE done_total counter") == 1
    assert 'done_created{a="x"} 10.0' in text


def test_of_who_is_gone_only_the_counts_stay() -> None:
    families = [_family("done", "counter"), _family("open", "gauge"), _family("took", "histogram")]
    assert [family.name for family in lasting(families)] == ["done", "took"]
    assert unpacked(packed(families)) == families
    assert unpacked(b"") == []
