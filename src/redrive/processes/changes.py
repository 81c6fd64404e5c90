"""Which files were edited: for `--reload`. Times of files are compared now and then, which needs no library."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

_LOOK = 0.4  # seconds between two looks
_KINDS = (".py", ".toml", ".yaml", ".yml")
_SKIPPED = {"node_modules", "__pycache__", "site-packages"}

Times = dict[str, tuple[int, int]]


async def changes(place: Path) -> AsyncIterator[list[str]]:
    """The files below it that were changed, made or removed, whenever there are some."""
    before = await asyncio.to_thread(times, place)
    while True:
        await asyncio.sleep(_LOOK)
        now = await asyncio.to_thread(times, place)
        if found := sorted(name for name in {*before, *now} if before.get(name) != now.get(name)):
            yield found
        before = now


def times(place: Path) -> Times:
    """When each source and settings file below it was written, and its size."""
    return dict(_times(str(place), ""))


def _times(directory: str, inside: str) -> Iterator[tuple[str, tuple[int, int]]]:
    try:
        entries = list(os.scandir(directory))
    except OSError:  # removed meanwhile, or not ours to read
        return
    if any(entry.name == "pyvenv.cfg" for entry in entries):
        return
    for entry in entries:
        name = f"{inside}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            if not entry.name.startswith(".") and entry.name not in _SKIPPED:
                yield from _times(entry.path, f"{name}/")
        elif entry.name.endswith(_KINDS):
            yield from _time(entry, name)


def _time(entry: os.DirEntry[str], name: str) -> Iterator[tuple[str, tuple[int, int]]]:
    try:
        found = entry.stat()
    except OSError:
        return
    yield name, (found.st_mtime_ns, found.st_size)
