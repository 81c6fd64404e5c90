"""`redrive completion`: what a shell reads, so that Tab completes."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from redrive.cli.lazy import common

_NAME = "redrive"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@common
def completion(shell: str) -> None:
    """Print what your shell reads, so that Tab completes commands, options, sources, groups and ids of letters.

    The ids are those of the store that is configured where you are, or given with --store before them. A store that is
    away completes nothing.

    \b
    bash    echo 'eval "$(redrive completion bash)"' >> ~/.bashrc
    zsh     echo 'eval "$(redrive completion zsh)"' >> ~/.zshrc        below `compinit`
    fish    redrive completion fish > ~/.config/fish/completions/redrive.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    click.echo(kind(root, {}, _NAME, f"_{_NAME}_COMPLETE".upper()).source())
