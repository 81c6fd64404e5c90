"""Whatever command changes something, the trail has it before it is done, and what became of it after that.

The commands are those of the command line itself: a new one has to be named here, among what sees or what acts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from redrive.access.trail import Line, Phase
from redrive.cli import main
from redrive.service import Service
from tests.cli.world import World

SEE = {  # they show something that is masked, or write files of their own
    *("alert-rules", "alerts rules", "approvals", "audit", "audit verify", "bullmq queues", "completion", "config"),
    *("dashboard", "differs", "doctor", "groups", "held", "incidents", "incidents list", "incidents show", "init"),
    *("letters", "queue", "replays", "replays show", "stats", "token list", "whoami", "workers"),
    *("email alert-rules", "email dlq list", "email dlq show", "email dlq stats", "email fairness", "email redis-conf"),
    *("email status", "files alert-rules", "files definitions", "files diff", "files dlq list", "files dlq peek"),
    *("pipeline alert-rules", "pipeline trace", "tickets alert-rules", "tickets query", "workflow alert-rules"),
    "audit checkpoint",
}
RUN = {  # they handle messages until somebody ends them
    *("demo", "run", "up", "bullmq watch", "email worker", "files worker", "pipeline engine", "pipeline module"),
    *("tickets dlq-consumer", "tickets worker"),
}
SEND = {"send", "email add", "pipeline send", "alerts test"}  # something new; nothing that is there changes
MAKE = {"files import", "pipeline topics", "tickets topics"}  # what is missing on a broker; no message changes
AT_A_SERVER = {"login", "logout"}  # which writes it down: tests/admin
ELSEWHERE = {  # with what they need: a replay or an incident that is open, a broker, a second person
    "approvals approve": "tests/admin",
    "approvals refuse": "tests/admin",
    "approvals withdraw": "tests/admin",
    "incidents ack": "tests/admin",
    "incidents note": "tests/admin",
    "incidents resolve": "tests/admin",
    "replays cancel": "tests/admin",
    "replays pace": "tests/admin",
    "replays pause": "tests/admin",
    "replays resume": "tests/admin",
    "audit prune": "redrive.testing.stores.trail",
    "collect": "tests/collect/test_rabbitmq.py",
    "email export": "the same as export",
    "email pause": "the same as pause",
    "email reprocess": "the same as replay",
    "email resume": "the same as resume",
    "email trim": "tests/systems/email/test_commands.py",
    "files dlq re-drive": "tests/systems/files/test_surfaces.py",
    "pipeline replay": "tests/systems/pipeline/test_from_topic.py",
    "tickets purge": "the same as purge",
    "tickets republish": "tests/systems/tickets/test_commands.py",
}
FIX, GROUP = "def repair(message):\n    return b'{}'\n", "groupaaaaaaa"
ACT: list[tuple[str, str, tuple[str, ...]]] = [
    ("show", "unmask", ("raw", "--unmask", "--reason", "ticket 1")),
    ("debug", "unmask", ("raw", "--handler", "shop:charge", "--pytest", "test_raw.py")),
    ("export", "export", ("letters.jsonl",)),
    ("import", "import", ("letters.jsonl",)),
    ("audit export", "audit export", ("trail.jsonl",)),
    ("edit", "edit", ("raw", "--header", "a=1", "--yes")),
    ("edit", "undo", ("raw", "--undo", "--yes")),
    ("repair", "export", ("fix.py", "--source", "orders", "--yes")),
    ("repair", "repair", ("fix.py", "--source", "mails", "--yes")),
    ("fix", "fix", (GROUP, "--in", "1.4.2")),
    ("mute", "mute", (GROUP, "--for", "1d", "--why", "known")),
    ("unmute", "unmute", (GROUP,)),
    ("note", "note-group", (GROUP, "look at the gateway")),
    ("assign", "assign", (GROUP, "ann")),
    ("pause", "pause", ("orders", "--why", "x")),
    ("resume", "resume", ("orders",)),
    ("archive", "archive", ("new", "--yes")),
    ("unarchive", "unarchive", ("new", "--yes")),
    ("retry", "replay", ("new",)),
    ("replay", "replay", ("--source", "orders", "--yes")),
    ("purge", "purge", ("--source", "mails", "--yes")),
    ("token create", "token create", ("--role", "viewer", "--name", "eve")),
    ("token rotate", "token rotate", ("TOKEN",)),
    ("token revoke", "token revoke", ("TOKEN",)),
    ("keys rotate", "keys rotate", ()),
]
READ = {("repair", "export"), ("audit export", "audit export")}


def _commands(command: click.Command, ctx: click.Context, *path: str) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield " ".join(path)
        return
    if command.invoke_without_command and path:
        yield " ".join(path)
    for name in command.list_commands(ctx):
        found = command.get_command(ctx, name)
        assert found is not None
        yield from _commands(found, click.Context(found, parent=ctx, info_name=name), *path, name)


def test_every_command_is_named_here() -> None:
    known = SEE | RUN | SEND | MAKE | AT_A_SERVER | {*ELSEWHERE} | {command for command, _, _ in ACT}
    assert {*_commands(main, click.Context(main))} == known


def test_every_command_that_acts_is_written_down_before_it_does(world: World) -> None:
    Path("fix.py").write_text(FIX)
    seen, token = 0, ""
    for command, action, words in ACT:
        named = {"raw": world.id("raw"), "new": world.id("new"), "TOKEN": token}
        said = world.shell(*command.split(), *(named.get(word, word) for word in words), code=None)
        lines = world.shell.ask(lambda service, seen=seen: _after(service, seen))  # type: ignore[misc]
        seen = max((line.seq for line in lines), default=seen)
        assert _is_whole(action, lines, is_read=(command, action) in READ), (command, said.stderr, lines)
        if command == "token create":
            (made,) = world.shell.json("token", "list")["tokens"]
            token = made["id"]


async def _after(service: Service, seq: int) -> list[Line]:
    return [line async for line in service.trail.lines(ascending=True) if line.seq > seq]


def _is_whole(action: str, lines: list[Line], *, is_read: bool) -> bool:
    """Whether an act of that name began, and a later line says that it is done; what is only read is one line."""
    ours = [line for line in lines if line.action == action]
    began = {line.seq for line in ours if line.outcome is Phase.BEGAN}
    done = {line.of for line in ours if line.outcome is Phase.DONE}
    return done == {None} if is_read else bool(began) and began == done
