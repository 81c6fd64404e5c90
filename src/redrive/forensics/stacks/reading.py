"""Finds out who printed a trace, and has it read."""

from __future__ import annotations

from collections.abc import Callable

from redrive.forensics.stacks.cut import cut_stack
from redrive.forensics.stacks.dotnet import read_dotnet
from redrive.forensics.stacks.frames import Runtime, runtime_of
from redrive.forensics.stacks.golang import read_go
from redrive.forensics.stacks.java import CAUSE, read_java
from redrive.forensics.stacks.model import Stack
from redrive.forensics.stacks.node import read_node
from redrive.forensics.stacks.python import TITLE, read_python

_LONGEST = 200_000
_READERS: dict[Runtime, Callable[[list[str]], Stack | None]] = {
    Runtime.JAVA: read_java,
    Runtime.NODE: read_node,
    Runtime.DOTNET: read_dotnet,
    Runtime.GO: read_go,
    Runtime.PYTHON: read_python,
}


def read_stack(text: str) -> Stack | None:
    """What a trace says; None for a text that is no trace of a runtime we know."""
    if "\n" not in text:
        return None
    lines = [line for line in cut_stack(text, _LONGEST).splitlines() if line.strip()]
    runtime = next((found for line in lines if (found := _printed_by(line)) is not None), None)
    return _READERS[runtime](lines) if runtime is not None else None


def _printed_by(line: str) -> Runtime | None:
    if line.startswith(CAUSE):
        return Runtime.JAVA
    if line.strip() == TITLE:
        return Runtime.PYTHON
    if line.lstrip().startswith("[cause]: "):
        return Runtime.NODE
    if line.lstrip().startswith("---> "):
        return Runtime.DOTNET
    return runtime_of(line)
