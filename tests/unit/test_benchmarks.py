"""The benchmarks run and speak JSON. How fast anything is, is never asserted here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.__main__ import chosen, found, main
from benchmarks.families import redis
from benchmarks.harness import Cell, Measured, Scale, Target, in_loop, side_by_side
from benchmarks.peers import PeerMissing, arq_redis, needed
from benchmarks.redis_child import ATTEMPTS, Counting, Failed, calls
from benchmarks.redis_field import Entrant, Field
from benchmarks.samples import BODY_SIZE, body, letters

from redrive import Redrive
from redrive.forensics.query import Query
from redrive.service import Service

QUICK = ("path/overhead", "letters/record", "letters/newest", "letters/groups", "console/letters")
"""None of these needs a peer installed."""
KEYS = {"cell", "redrive", "unit", "peers", "best_peer", "ratio", "target", "met", "settings", "machine", "quick"}


@pytest.mark.parametrize("name", QUICK)
def test_a_cell_prints_one_line_of_json(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REDRIVE_BENCH_DIR", str(tmp_path))
    assert main([name, "--quick"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    result: dict[str, Any] = json.loads(line)
    assert result.keys() >= KEYS
    assert result["cell"] == name
    assert result["redrive"] > 0
    assert result["best_peer"] in result["peers"]
    assert result["quick"] is True


def test_the_ratio_is_above_one_where_we_are_better_whatever_the_unit() -> None:
    rate = Cell(name="a/rate", unit="messages/s", measure=lambda _: Measured(redrive=300, peers={"x": 50, "y": 100}))
    wait = Cell(
        name="a/wait",
        unit="ms",
        measure=lambda _: Measured(redrive=2, peers={"x": 6, "y": 10}),
        target=Target(most=1),
        less_is_better=True,
    )
    assert (rate.run(Scale()).best_peer, rate.run(Scale()).ratio) == ("y", 3)
    assert (wait.run(Scale()).best_peer, wait.run(Scale()).ratio) == ("x", 3)
    assert wait.run(Scale()).met is False


def test_every_contender_is_measured_in_every_round_and_the_median_counts() -> None:
    figures = {"a": iter([1.0, 3.0, 2.0]), "b": iter([5.0, 4.0, 6.0])}
    assert side_by_side({name: figures[name].__next__ for name in figures}, rounds=3) == {"a": 2, "b": 5}


def test_a_family_or_a_cell_can_be_chosen_and_a_typo_is_named() -> None:
    cells = found()
    assert {cell.name.split("/")[0] for cell in chosen(cells, ["letters"])} == {"letters"}
    assert [cell.name for cell in chosen(cells, ["letters/record"])] == ["letters/record"]
    with pytest.raises(SystemExit, match="no family or cell 'leters'"):
        chosen(cells, ["leters"])


def test_a_cell_whose_peer_is_missing_is_named_at_the_end_and_keeps_no_other_from_being_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without_node(scale: Scale) -> Measured:
        raise PeerMissing("it needs Node 20")

    cells = [
        Cell(name="a/node", unit="ms", measure=without_node),
        Cell(name="a/other", unit="ms", measure=lambda _: Measured(redrive=1, peers={})),
    ]
    monkeypatch.setattr("benchmarks.__main__.found", lambda: cells)
    assert main([]) == 2
    said = capsys.readouterr()
    assert [json.loads(line)["cell"] for line in said.out.splitlines()] == ["a/other"]
    assert "a/node was not measured: it needs Node 20" in said.err


def test_a_peer_that_is_not_installed_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(PeerMissing, match="requirements-bench"):
        needed("no_such_peer")


@pytest.mark.servers
@pytest.mark.parametrize("tenants", [0, 7])
def test_on_redis_we_add_and_handle_everything_in_processes_of_our_own(
    tenants: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDRIVE_BENCH_DIR", str(tmp_path))
    ours, quick = redis._redrive("redrive", tenants), Scale(quick=True)
    with Field() as field:
        passage = field.passage(ours, quick, failing=True)
        assert min(passage.enqueued, passage.memory, passage.settled) > 0
        assert in_loop(_letters(field.url)) == 2  # of 200 jobs, numbers 0 and 100 always fail
        assert len(field.waits(ours, 3)) == 3


async def _letters(url: str) -> int:
    async with Redrive(transport="memory://", store=url) as app:
        return await Service(app).count(Query())


@pytest.mark.servers
def test_a_contender_that_ends_early_is_an_error_that_quotes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDRIVE_BENCH_DIR", str(tmp_path))
    broken = Entrant(name="broken", command=(sys.executable, "-c", "1 / 0"), unsettled=lambda redis: 0)
    with Field() as field, pytest.raises(SystemExit, match=r"(?s)broken \(produce\) ended.*ZeroDivisionError"):
        field.passage(broken, Scale(quick=True))


def test_how_often_a_failing_handler_is_called_is_counted_before() -> None:
    failed: list[int] = []
    ended: list[int] = []
    handle = Counting(calls(1000, failing=True), lambda: ended.append(len(failed)), failing=True)
    waiting = [(number, ATTEMPTS) for number in range(1000)]
    while waiting:
        number, left = waiting.pop()
        try:
            handle({"order": f"ord-{number:09d}"})
        except Failed:
            failed.append(number)
            waiting += [(number, left - 1)] if left > 1 else []
    assert len(ended) == 1
    assert len(set(failed)) == 110
    assert len(failed) == 100 + 10 * ATTEMPTS


def test_the_environments_of_peers_are_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", "/nowhere")
    with pytest.raises(PeerMissing, match=r"arq in an .* /nowhere/arq/bin/python: run `make bench`"):
        redis._own("arq", arq_redis)
    monkeypatch.setattr(redis, "_PEERS", Path("/nowhere"))
    with pytest.raises(PeerMissing, match="Node 20"):
        redis._node()


def test_the_samples_are_the_same_each_time_and_of_the_size_they_claim() -> None:
    assert {len(body(number)) for number in (0, 7, 999_999)} == {BODY_SIZE}
    assert list(letters(3, 5)) == list(letters(0, 10))[3:8]
