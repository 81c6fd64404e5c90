"""`redrive audit` and `redrive approvals`, as somebody with the store sees them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.world import World

BOTH_HOMES = True


def test_a_direct_access_is_named_and_the_trail_is_proven(world: World, home: str, tmp_path: Path) -> None:
    world.shell("archive", world.id("new"), "--yes")
    [act] = world.shell.json("audit")["audit"]
    assert (act["action"], act["outcome"], act["via"]) == ("archive", "done", "store" if home == "store" else "token")
    head = tmp_path / "head.json"
    head.write_text(world.shell("audit", "checkpoint").stdout)
    world.shell("unarchive", world.id("new"), "--yes")
    verdict = world.shell.json("audit", "verify", "--checkpoint", str(head))
    assert (verdict["broken"], verdict["checkpoint"]) == (None, 3)
    lines = [json.loads(line) for line in world.shell("audit", "export").stdout.splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert world.shell.json("audit", "--action", "unarchive", "--actor", "nobody", code=1)["audit"] == []


def test_a_filter_that_the_whole_chain_does_not_have_is_refused(world: World, tmp_path: Path) -> None:
    world.shell("archive", world.id("new"), "--yes")
    for words in (("export", str(tmp_path / "all.jsonl")), ("verify",), ("checkpoint",)):
        said = world.shell("audit", "--actor", "ann", *words, code=2).stderr
        assert f"redrive audit {words[0]} is of every line" in said
    assert not (tmp_path / "all.jsonl").exists()


def test_secrets_are_shown_for_a_reason_which_is_kept(world: World) -> None:
    assert "say why" in world.shell("show", world.id("raw"), "--unmask", code=2).stderr
    world.shell("show", world.id("raw"), "--unmask", "--reason", "ticket 4711")
    told = [(act["outcome"], act["reason"]) for act in world.shell.json("audit", "--action", "unmask")["audit"]]
    assert told == [("done", "ticket 4711"), ("refused", "")]
