"""The group of all commands. A command's module is imported when it is called, and not before."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from redrive.cli import exits
from redrive.cli.homes import why_not_remote
from redrive.systems.base import System, resolved
from redrive.systems.discover import refuse, refused, systems


@dataclass
class Given:
    """What was said for every command, before its name or after it."""

    arguments: list[str] = field(default_factory=list)  # as typed, for hints that repeat them
    config: Path | None = None
    store: str | None = None
    server: str | None = None
    ca_file: Path | None = None
    debug: bool = False


Table = Mapping[str, Mapping[str, tuple[str, str]]]
"""section -> command -> (module:attribute, its line in the help); `.name` is a module of redrive.cli.commands"""
_RULES = "alert-rules"
SYSTEMS = "Systems"
"""The section of the commands that systems bring."""


class Commands(click.Group):
    """Looks commands up in a table, and those of the systems in their descriptors."""

    def __init__(self, *arguments: Any, table: Table, extras: Mapping[str, str] | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._table = table
        self._extras = extras or {}  # of commands of Redrive's own that need one
        self._targets = {name: target for lines in table.values() for name, (target, _) in lines.items()}

    def table(self) -> Table:
        """Every command by its section."""
        commands = {name: (system.command, system.about) for name, system in self._systems().items()}
        return {**self._table, SYSTEMS: commands}

    def _systems(self) -> dict[str, System]:
        """The systems that have a command. A command of Redrive's own is never one of a system."""
        found = {name: system for name, system in systems().items() if system.command or system.rules}
        for name in found.keys() & self._targets.keys():
            refuse(name, "a command of Redrive itself has that name")
            del found[name]
        return found

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for lines in self.table().values() for name in lines]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = self._found(cmd_name)
        if command is not None and isinstance(ctx.obj, Given) and _asks_for_help(ctx.obj.arguments):
            _tell_missing(command, self._extra_of(cmd_name))
        return command

    def _found(self, name: str) -> click.Command | None:
        target = self._targets.get(name)
        if target is None:
            system = self._systems().get(name)
            return None if system is None else self._command_of(system)
        module, _, attribute = target.partition(":")
        command: click.Command = getattr(import_module(module, "redrive.cli.commands"), attribute)
        return command

    def _extra_of(self, name: str) -> str:
        system = self._systems().get(name)
        return self._extras.get(name, "") if system is None else system.extra

    def _command_of(self, system: System) -> click.Command:
        from redrive.errors import MissingExtra

        try:
            command: click.Command = resolved(system.command, system.extra) if system.command else _group(system)
            if system.rules and isinstance(command, click.Group) and _RULES not in command.commands:
                command.add_command(_alert_rules(system))
        except MissingExtra as error:
            return _stand_in(system, error)
        except Exception as error:  # whatever a stranger's module raises
            said = f"{type(error).__name__}: {error}"
            raise exits.Stopped(f"the system {system.name!r} has no command that works: {said}", exits.WRONG) from error
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self._targets and not args[0].startswith("-") and args[0] not in self._systems():
            from redrive.errors import nearest

            raise click.UsageError(f"no command {args[0]!r}{nearest(args[0], self.list_commands(ctx))}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in sections, from the table: nothing is imported for it."""
        table = self.table()
        width = max(len(name) for lines in table.values() for name in lines)
        for section, lines in table.items():
            if lines:
                with formatter.section(section):
                    formatter.write_dl([(name.ljust(width), line) for name, (_, line) in lines.items()])
        _tell_refused()

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> click.Context:
        extra.setdefault("obj", Given(arguments=list(args)))
        return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; every foreseen error becomes one line and an exit code."""
        try:
            _tell_refused()
            answer = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            raise exits.unread() from None
        except KeyboardInterrupt:
            raise exits.Stopped("interrupted", exits.INTERRUPTED) from None
        except click.exceptions.Exit:
            raise
        except Exception as error:
            error = self._lacking(ctx, error)
            if (instead := exits.stopped_by(error, debug=ctx.obj.debug)) is error:
                raise
            raise instead from error
        return answer

    def _lacking(self, ctx: click.Context, error: Exception) -> Exception:
        """The error, or MissingExtra if a command of a system lacks a library that its extra brings."""
        system = self._systems().get(ctx.invoked_subcommand or "")
        if system is None or not system.extra or not isinstance(error, ModuleNotFoundError):
            return error
        if (error.name or "").partition(".")[0] == "redrive":
            return error
        from redrive.errors import MissingExtra

        return MissingExtra(f"redrive {system.name}", system.extra)


def _asks_for_help(words: list[str]) -> bool:
    return "--help" in words or "-h" in words


def _tell_missing(command: click.Command, extra: str) -> None:
    """Add to the help of a command, and of those below it, what it needs and is not installed."""
    from redrive.extras import install, missing_extras

    lacking = [name for name in extra.split(",") if name in missing_extras()]
    if lacking:
        command.epilog = f"\b\nIt needs what is not installed here:\n  {install(*lacking)}"
        for below in command.commands.values() if isinstance(command, click.Group) else ():
            _tell_missing(below, extra)


def _stand_in(system: System, missing: Exception) -> click.Command:
    """For a command whose module cannot be imported without its extra: it has a help, and whatever else says why."""

    def refuse_all(words: tuple[str, ...]) -> None:
        raise missing

    return common(  # type: ignore[no-any-return]
        click.Command(
            system.name,
            callback=refuse_all,
            params=[click.Argument(["words"], nargs=-1, type=click.UNPROCESSED, metavar="COMMAND [ARGS]...")],
            help=f"{system.about}.",
            context_settings={"ignore_unknown_options": True},
        )
    )


def _group(system: System) -> click.Group:
    """For a system that has rules and no command of its own."""
    return common(click.Group(system.name, help=f"{system.about}."))  # type: ignore[no-any-return]


def _alert_rules(system: System) -> click.Command:
    @click.command(_RULES)
    @common
    def alert_rules() -> None:
        """Print alert rules for Prometheus, to be put among its `rule_files`."""
        from pkgutil import get_data

        click.echo((get_data(*system.rules.split(":")) or b"").decode(), nl=False)

    return alert_rules


def _tell_refused() -> None:
    """A system that cannot be loaded is named, and nothing else fails because of it."""
    for line in refused():
        click.echo(f"warning: {line}", err=True)


def _remember(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value not in (None, False):
            setattr(ctx.ensure_object(Given), name, value)

    return callback


def _at_server(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Remember the server, and refuse one that was given, before the name or after it, to what works without any."""
    said = ctx.ensure_object(Given)
    said.server = value or said.server
    if said.server is not None and (why := why_not_remote(ctx.command_path.split()[1:])):
        raise exits.Stopped(f"{ctx.command_path} takes no --server: {why}", exits.WRONG)


def _colorless(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    import os

    if value or os.environ.get("NO_COLOR"):
        ctx.color = False


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        expose_value=False,
        callback=_remember("config"),
        help="Read settings from this file. [redrive.toml, if it is here]",
    ),
    click.option(
        "--store",
        metavar="URL",
        expose_value=False,
        callback=_remember("store"),
        help="Use this database, not the configured one. [sqlite:///redrive.db]",
    ),
    click.option(
        "--server",
        metavar="URL",
        expose_value=False,
        callback=_at_server,
        help="Ask this server, with the token of `redrive login` or REDRIVE_TOKEN, and no database.",
    ),
    click.option(
        "--ca-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        expose_value=False,
        callback=_remember("ca_file"),
        help="Trust the certificate authority of this PEM file, too: it signed the server's certificate.",
    ),
    click.option(
        "--no-color",
        is_flag=True,
        expose_value=False,
        callback=_colorless,
        help="Without colours; the variable NO_COLOR says the same.",
    ),
    click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        callback=_remember("debug"),
        help="Show the traceback of an error.",
    ),
)


def common(command: Any) -> Any:
    """The options that every command takes, before its name or after it."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
