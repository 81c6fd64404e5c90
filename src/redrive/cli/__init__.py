"""The command line: `redrive --help`. One file per group of commands, each imported when it is called."""

from __future__ import annotations

import click

from redrive import __version__
from redrive.cli.lazy import SYSTEMS, Commands, common

TABLE = {
    "Run": {
        "init": (".init:init", "Write a small app, its configuration and a test to begin with"),
        "run": (".run:run", "Handle messages with your app: redrive run shop:app"),
        "up": (".serve:up", "Serve the console, the admin API, health and metrics"),
        "demo": (".serve:demo", "See messages fail, retry and recover, with nothing to set up"),
        "send": (".send:send", "Send a message to a source"),
    },
    "See": {
        "letters": (
            ".letters:letters",
            "Dead letters, newest first, by source, state, age, text …",
        ),
        "show": (".show:show_letter", "One letter: every attempt and its stack, headers, body"),
        "groups": (".groups:groups", "Letters by root cause: start here when it burns"),
        "stats": (".stats:stats", "Letters and queues, counted"),
        "differs": (".notes:differs", "What the letters of a group have, and others of its sources have not"),
        "queue": (".queue:queue", "The messages of a source: ready, delayed, leased and by whom"),
        "held": (".held:held", "Keys that a dead letter holds, and how many wait behind it"),
        "workers": (".workers:workers", "Who works on what, since when, with how many in hand"),
        "replays": (".replays:replays", "What was replayed, and what became of each letter"),
        "approvals": (".approvals:approvals", "What waits for a second person: approve, refuse, withdraw"),
        "incidents": (".incidents:incidents", "What is wrong now, and who works on it"),
    },
    "Act": {
        "replay": (
            ".replay:replay",
            "Send letters back to their source; shows the plan, then asks",
        ),
        "retry": (".retry:retry", "Send single letters back, now"),
        "debug": (".debug:debug", "Run a handler on a letter's message under pdb, or write a test of it"),
        "archive": (".archive:archive", "Put letters away as done with; they are kept"),
        "fix": (".fix:fix", "Say in which version a group is fixed; its letters go back when it runs"),
        "mute": (".fix:mute", "Mute a group for a while: no alerts, not in the list"),
        "unmute": (".fix:unmute", "Let people hear of a group that is muted"),
        "note": (".notes:note", "Write something down beside a group, or read what was written"),
        "assign": (".notes:assign", "Say who sees to a group"),
        "pause": (".pause:pause", "Pause a source: no worker receives anything of it"),
        "resume": (".pause:resume", "Let a source that is paused go on"),
        "unarchive": (".archive:unarchive", "Take archived letters back to what they were"),
        "edit": (".edit:edit", "Change the body or headers of a letter; every version is kept"),
        "repair": (".repair:repair", "Run a script of yours over many letters; asks first, and can be undone"),
        "purge": (".purge:purge", "Delete letters for good; asks first"),
    },
    "Move": {
        "export": (".transfer:export_letters", "Write letters as JSON lines, byte-exact"),
        "collect": (
            ".collect:collect",
            "Bring a dead-letter topic or queue of a broker into the store",
        ),
        "import": (".transfer:import_letters", "Read them back, here or into another database"),
    },
    SYSTEMS: {},  # each says its own line (systems/base.py)
    "Admin": {
        "doctor": (".doctor:doctor", "What is configured, reachable and unsafe; how to mend it"),
        "audit": (".audit:audit", "Who did what, and the proof that nobody has changed it since"),
        "login": (".login:login", "Log in to a server: on another device, or with a token"),
        "logout": (".login:logout", "Forget the login of a server"),
        "whoami": (".login:whoami", "Who a server takes you for, and what you may do there"),
        "token": (".tokens:token", "Tokens of the admin API: create, list, revoke"),
        "keys": (".keys:keys", "Keys that sign what is sent back: rotate"),
        "alerts": (
            ".alerts:alerts",
            "Who is told when something goes wrong: try it, see the rules",
        ),
        "alert-rules": (".monitoring:alert_rules", "Alert rules for Prometheus, of the core and of your systems"),
        "dashboard": (".monitoring:dashboard", "A dashboard for Grafana of the same"),
        "config": (".config:config", "Every setting, its value and where it came from"),
        "completion": (".completion:completion", "Let Tab complete commands, sources, groups and letters"),
    },
}

EXTRAS = {"up": "server", "demo": "server", "login": "remote", "whoami": "remote"}

EPILOG = """\b
A first session, in an empty directory:
  redrive send orders '{"id": 7}'      a message waits in ./redrive.db
  redrive run shop:app                 your handler fails on it; it is buried
  redrive groups                       why: one line for each cause
  redrive show LETTER                  every attempt, the stack, the body
  redrive replay --source orders       mended? send them back, and watch

\b
Exit codes:
  0    done
  1    nothing matched, or only a part of it could be done
  2    wrong usage or configuration
  3    a database or broker is unavailable
  130  interrupted (Ctrl-C)

Every command has its own --help; those that show something take --json.
"""


@click.command(
    cls=Commands, table=TABLE, extras=EXTRAS, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]}
)
@common
@click.version_option(__version__, prog_name="redrive", message="%(prog)s %(version)s")
def main() -> None:
    """Redrive keeps the messages that your consumers could not handle, says why, and sends them back.

    A message that fails is tried again; one that keeps failing becomes a letter, with its bytes and every error.
    Letters with one cause are one group. A replay sends letters back to where they came from.
    """
