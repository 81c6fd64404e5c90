"""`redrive note`, `assign`, `differs`, `stats --since`, and what `retry` says of each letter, as they are typed."""

from __future__ import annotations

from tests.cli.world import World, letter

BOTH_HOMES = True

GROUP = "groupaaaaaaa"


def test_a_note_is_kept_beside_its_group_and_masked(world: World) -> None:
    assert "nobody has written anything" in world.shell("note", GROUP, code=1).stderr
    assert "written down" in world.shell("note", "groupaa", "mended on Friday, password=hunter2").stderr
    assert "there are 2 notes" in world.shell("note", GROUP, "or on Monday").stderr
    first, second = world.shell.json("note", GROUP)
    assert first["text"].startswith("mended on Friday")
    assert "hunter2" not in first["text"]
    assert second["text"] == "or on Monday"
    assert "or on Monday" in world.shell("note", GROUP).stdout
    assert "no group 'nothing'" in world.shell("note", "nothing", "x", code=1).stderr


def test_a_group_is_assigned_and_groups_says_to_whom(world: World) -> None:
    assert world.shell.json("assign", GROUP, "ann")["assignee"] == "ann"
    assert "ann sees to it" in world.shell("groups").stdout
    assert "nobody sees to it now" in world.shell("assign", "groupaa", "--nobody").stderr
    [group] = [group for group in world.shell.json("groups")["groups"] if group["id"] == GROUP]
    assert group["assignee"] is None
    assert "and not both" in world.shell("assign", GROUP, code=2).stderr


def test_what_differs_is_printed(world: World) -> None:
    world.shell.keep([letter(number, group="groupddddddd", body=b'{"country": "DE"}') for number in range(20, 26)])
    world.shell.keep([letter(number, body=b'{"country": "FR"}') for number in range(30, 36)])
    found = world.shell.json("differs", "groupddd")
    assert found["letters"] == 6
    assert {"field": "body.country", "value": "DE", "here": 1.0, "elsewhere": 0.0} in found["fields"]
    assert "body.country" in world.shell("differs", "groupddddddd").stdout
    assert "no others of its sources" in world.shell("differs", "groupccccccc", code=1).stderr


def test_the_past_is_a_table_with_bars(world: World) -> None:
    world.shell.keep([letter(number) for number in range(40, 44)])
    found = world.shell.json("stats", "--since", "24h")
    buried = {line["name"]: line["total"] for line in found["outcomes"]["lines"]}["buried"]
    assert buried == sum(line["total"] for line in found["sources"]["lines"])
    assert {line["name"] for line in found["sources"]["lines"]} == {"orders", "mails", "files"}
    done = world.shell("stats", "--since", "24h")
    assert "orders" in done.stdout
    assert "Each bar is one" in done.stderr


def test_a_retry_says_what_was_not_sent_and_why(world: World) -> None:
    waits = letter(9, depends_on=("m1",))
    world.shell.keep([waits])
    done = world.shell("retry", "m9", code=1)
    assert f"{waits.id} skipped: " in done.stderr
    assert world.shell.json("retry", "m9", code=1)["entries"] == {"skipped": 1}
    assert waits.id not in world.shell("retry", "m2").stderr
