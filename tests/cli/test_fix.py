"""`redrive fix`, `mute` and `unmute`, as somebody types them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from redrive.service import Service
from tests.cli.world import World

BOTH_HOMES = True

GROUP = "groupaaaaaaa"


def test_a_group_is_fixed_and_groups_says_what_it_waits_for(world: World) -> None:
    done = world.shell("fix", "groupaa", "--in", "1.4.2")
    assert "fixed in 1.4.2, which is not deployed yet: orders has no worker" in done.stderr
    assert "no worker and no letter of this group has reported 1.4.2 yet" in done.stderr
    assert f"redrive fix {GROUP} --undo" in done.stderr
    assert "fixed in 1.4.2, which is not deployed yet" in world.shell("groups").stdout
    [group] = [group for group in world.shell.json("groups")["groups"] if group["id"] == GROUP]
    assert (group["state"], group["fix"]["version"]) == ("fixed", "1.4.2")
    assert "not fixed after all" in world.shell("fix", GROUP, "--undo").stderr
    assert "nothing to undo" in world.shell("fix", GROUP, "--undo", code=2).stderr


def test_a_muted_group_is_out_of_the_list_and_counted(world: World) -> None:
    before = len(world.shell.json("groups")["groups"])
    done = world.shell("mute", GROUP, "--for", "2d", "--why", "the supplier mends it")
    assert f"redrive unmute {GROUP}" in done.stderr
    listed = world.shell("groups")
    assert GROUP not in listed.stdout
    assert "1 group is muted; --muted shows them too." in listed.stderr
    answer = world.shell.json("groups")
    assert (len(answer["groups"]), answer["muted"]) == (before - 1, 1)
    assert "the supplier mends it" in world.shell("groups", "--muted").stdout
    assert GROUP in world.shell("groups", "--group", GROUP).stdout  # who names it sees it
    world.shell("unmute", GROUP)
    assert "was not muted" in world.shell("unmute", GROUP, code=1).stderr
    assert GROUP in world.shell("groups").stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("fix", GROUP), 2, "say the version"),
        (("fix", GROUP, "--in", "1", "--undo"), 2, "not both"),
        (("fix", GROUP, "--in", "two words"), 2, "is no version"),
        (("fix", GROUP, "--in", ""), 2, "is no version"),
        (("fix", "nope", "--in", "1"), 1, "no group 'nope'"),
        (("fix", "g", "--in", "1"), 2, "more than one group"),
        (("mute", GROUP), 2, "--for"),
        (("mute", GROUP, "--for", "2d"), 2, "--why"),
        (("mute", GROUP, "--for", "soon", "--why", "x"), 2, "--for"),
        (("mute", "nope", "--for", "2d", "--why", "x"), 1, "no group 'nope'"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(world: World, words: tuple[str, ...], code: int, said: str) -> None:
    assert said in world.shell(*words, code=code).stderr


def test_doctor_names_what_is_fixed_and_waits_for_a_person(world: World) -> None:
    world.shell("fix", GROUP, "--in", "1.4.2")
    assert GROUP not in world.shell("doctor", code=None).stdout  # it waits for workers, and nobody can help
    deployed(world)
    assert f"redrive replay --group {GROUP}" in world.shell("doctor", code=None).stdout
    assert "which is deployed: it can be replayed" in world.shell("groups").stdout
    regressed(world)
    assert f"{GROUP} has regressed" in world.shell("doctor", code=None).stdout
    assert "died on 1.5" in world.shell("groups").stdout


def deployed(world: World) -> None:
    changed(world, deployed_at=datetime.now(UTC))


def regressed(world: World) -> None:
    changed(world, regressed_at=datetime.now(UTC), regressed_in="1.5", letter="letter")


def changed(world: World, **changes: Any) -> None:
    """As upkeep writes it down."""

    async def change(service: Service) -> bool:
        fix = (await service.marks.get(GROUP)).fix
        assert fix is not None
        return await service.marks.change_fix(GROUP, fix.id, **changes)

    assert world.shell.ask(change)
