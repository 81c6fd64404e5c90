"""Letters of hostile messages as people and programs are shown them: by the command line and the API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from click.testing import CliRunner

from redrive import Redrive
from redrive.access.actors import Role
from redrive.access.tokens import Tokens
from redrive.admin.api import create_api
from redrive.cli import main
from redrive.config.load import parsed
from redrive.errors import ConfigError
from redrive.service import Service
from redrive.systems.pipeline.graph import Graph
from redrive.testing.hostile import Hostile
from tests.admin.asking import asking, running
from tests.fuzz.kept import letter_of
from tests.fuzz.rows import Row


async def _filled(url: str, cases: Sequence[Hostile]) -> None:
    async with Redrive(store=url) as app:
        for start in range(0, len(cases), 200):
            await app.store.letters.record([letter_of(case) for case in cases[start : start + 200]])


_LISTS = (
    ("letters", "--limit", "1000", "--json"),
    ("letters", "--limit", "1000"),
    ("letters", "--text", "[["),
    ("groups",),
    ("groups", "--json"),
)
_WAYS = ((), ("--json",), ("--raw",))


def cli_stage(place: Path, cases: Sequence[Hostile]) -> Row:
    """The lists of all, and `show` of each: as a page, as JSON or as it is."""
    url = f"sqlite:///{place / 'fuzz-cli.db'}"
    asyncio.run(_filled(url, cases))
    stops, lost, notes = 0, 0, list[str]()
    shows = [("show", letter_of(case).id, *_WAYS[number % 3]) for number, case in enumerate(cases)]
    for words, case in zip((*_LISTS, *shows), (*[None] * len(_LISTS), *cases), strict=True):
        done = CliRunner().invoke(main, ["--store", url, *words], prog_name="redrive")
        if done.exception is not None:
            stops += 1
            notes.append(f"{' '.join(words)}: {done.exception!r}"[:200])
        elif "--raw" in words and case is not None:
            lost += done.stdout_bytes != case.body
        else:
            lost += "hunter2" in done.stdout
    return Row("redrive show, letters, groups", len(cases), stops, lost, tuple(notes[:5]))


async def api_stage(place: Path, cases: Sequence[Hostile]) -> Row:
    """Each letter in full, and the lists of all."""
    url = f"sqlite:///{place / 'fuzz-api.db'}"
    await _filled(url, cases)
    stops, lost, notes = 0, 0, list[str]()
    async with Redrive(store=url) as app:
        tokens = Tokens(app.store.documents, app.clock)
        secret = (await tokens.create("fuzz", Role.VIEWER))[1]
        api = create_api(Service(app), tokens=tokens)
        paths = [f"/api/letters/{letter_of(case).id}" for case in cases]
        async with running(api), asking(api, secret) as client:
            for path in ["/api/letters?limit=1000", "/api/groups", "/api/letters?text=%5B%5B", "/api/stats", *paths]:
                answer = await client.get(path)
                if answer.status_code != 200:
                    stops += 1
                    notes.append(f"{path}: {answer.status_code} {answer.text[:150]}")
                    continue
                json.loads(answer.content)
                lost += "hunter2" in answer.text
    return Row("API letters, letter, groups", len(cases), stops, lost, tuple(notes[:5]))


def yaml_stage(place: Path, cases: Sequence[Hostile]) -> Row:
    """A settings file or a graph that cannot be read says so."""
    stops, notes = 0, list[str]()
    small = [case for case in cases if len(case.body) < 1500]  # the parser is a slow one
    for case in small:
        for name, read in (("fuzz.yaml", parsed), ("fuzz.toml", parsed), ("graph.yaml", Graph.load)):
            file = place / name
            file.write_bytes(case.body)
            try:
                read(file)
            except ConfigError:
                continue
            except Exception as error:
                stops += 1
                notes.append(f"{name}, {case.kind}: {type(error).__name__}: {error}"[:200])
    return Row("settings and graphs in YAML, TOML", len(small), stops, 0, tuple(notes[:5]))
