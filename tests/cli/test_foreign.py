"""Letters of consumers that are not ours: what the command line says of what it sends back to them."""

from __future__ import annotations

from msgspec.structs import replace

from redrive.model import State
from tests.cli.world import Shell, letter


def keep(shell: Shell, number: int) -> None:
    shell.keep([replace(letter(n), foreign=True) for n in range(number)])


def test_waiting_for_them_ends_at_once_and_speaks_of_no_worker(shell: Shell) -> None:
    keep(shell, 3)
    done = shell("replay", "--all", "--yes", "--wait")
    assert "sent 3" in done.stderr
    assert "3 letters went back to consumers that are not Redrive's" in done.stderr
    assert "redrive run" not in done.stderr
    assert {shell.state_of(f"m{n}") for n in range(3)} == {State.SENT}


def test_of_ours_beside_them_the_outcome_is_awaited(shell: Shell) -> None:
    keep(shell, 2)
    shell.keep([letter(7)])
    done = shell("replay", "--all", "--yes", "--timeout", "10ms", code=1)
    assert "2 letters went back" in done.stderr
    assert shell.state_of("m7") is State.REPLAYING


def test_they_can_be_filtered_retried_archived_and_purged_and_are_not_open(shell: Shell) -> None:
    keep(shell, 3)
    shell("replay", "--all", "--yes")
    assert len(shell.json("letters", "--state", "sent")["letters"]) == 3
    stats = shell.json("stats")
    assert (stats["states"], stats["open"]) == ({"sent": 3}, 0)
    assert "nothing was sent" in shell("replay", "--source", "orders", "--yes", code=1).stderr, "they are not doubled"
    shell("retry", "m0", "--wait")
    shell("replay", "--state", "sent", "--yes")
    assert shell.json("show", "m0")["resends"] == 3
    shell("archive", "m1")
    assert shell.json("purge", "--state", "sent", "--yes") == {"purged": 2, "kept": 0}
