"""What a page of the console waits for, and what open pages cost: a week of a million letters in SQLite, asked through
the server as a browser asks it."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from benchmarks.asking import Asked, Served, served
from benchmarks.browsing import OPENED, idle_consoles, opened
from benchmarks.harness import Cell, Measured, Numbers, Scale, Target, say
from benchmarks.week import Week, week
from redrive.console import assets

_ASKED_MS, _TEXT_MS = 50.0, 300.0
_OPEN = "states=pending&states=retrying&states=replaying&states=exhausted"
Path = Callable[["_Known", int], str]


class _Known(Struct, frozen=True):
    """What is in the file, for the paths."""

    count: int
    groups: list[str]
    letters: list[str]
    old: list[str]  # of the beginning of the week
    after: str


def _always(path: str) -> Path:
    return lambda known, number: path


PATHS: dict[str, Path] = {
    "overview": _always("/api/overview?last=24h"),
    "overview-30d": _always("/api/overview?last=30d"),
    "series-15m": _always("/api/series?last=15m&by=outcome"),
    "series-24h": _always("/api/series?last=24h&by=source"),
    "series-30d": _always("/api/series?last=30d&by=category"),
    "groups": _always(f"/api/groups?{_OPEN}&limit=100&spark=24&last=24h"),
    "group": lambda known, number: f"/api/groups/{known.groups[number % 10]}",
    "group-differs": lambda known, number: f"/api/groups/{known.groups[number % 10]}/differs",
    "letters": _always("/api/letters"),
    "letters-source": _always("/api/letters?sources=shop.reports"),
    "letters-category": _always("/api/letters?categories=validation&states=exhausted"),
    "letters-tenant": _always("/api/letters?tenants=acme&sources=shop.orders"),
    "letters-next": lambda known, number: f"/api/letters?after={known.after}",
    "letters-text": lambda known, number: f"/api/letters?text=ord-{number * 7919 % known.count:09d}",
    "letters-text-few": lambda known, number: f"/api/letters?text=customer-{number * 37 % 5000:04d}@",
    "letters-text-many": _always("/api/letters?text=connectionrefused"),
    "letter": lambda known, number: f"/api/letters/{known.letters[number % 50]}",
    "lineage": lambda known, number: f"/api/letters/{known.old[number % 50]}/lineage",
    "replays": _always("/api/replays"),
    "sources": _always("/api/sources"),
    "incidents": _always("/api/incidents"),
    "stats": _always("/api/stats"),
    "audit": _always("/api/audit"),
}


def _file(scale: Scale) -> Week:
    return week(scale.of(1_000_000, 2_000))


@cache
def _server(held: Week) -> tuple[Served, _Known]:
    """One for all these cells: it ends with the process."""
    running = ExitStack()
    atexit.register(running.close)
    server = running.enter_context(served(held.path))
    return server, _known(server, held.count)


def _known(server: Served, count: int) -> _Known:
    groups = msgspec.json.decode(server.get("/api/groups"))
    page = msgspec.json.decode(server.get("/api/letters"))
    old = msgspec.json.decode(server.get("/api/letters?before=2026-02-24T12:00:00Z"))
    letters, older = ([letter["id"] for letter in found["letters"]] for found in (page, old))
    return _Known(count, [group["id"] for group in groups] * 10, letters, older, page["after"])


# -- what a page asks for ----------------------------------------------------------------------------------------------


def _request(path: Path, times: int) -> Callable[[Scale], Measured]:
    """The p99 of the calmest round, and the server's CPU for one, beside a route that answers as many bytes and does
    nothing for them."""

    def measure(scale: Scale) -> Measured:
        held, many = _file(scale), scale.of(times, 5)
        rounds: dict[str, list[Asked]] = {"redrive": [], "a bare route": []}
        server, known = _server(held)
        for _ in range(scale.rounds):
            asked = server.ask(lambda number: path(known, number), many, token=server.listening.admin)
            size = max(len(asked.answer), 2)
            rounds["redrive"].append(asked)
            rounds["a bare route"].append(server.ask(lambda number: f"/bare?size={size}", many))  # noqa: B023
            say(f"  {asked.figures}")
        figures = {name: _calmest(asked) for name, asked in rounds.items()}
        return Measured(
            redrive=figures["redrive"]["p99"],
            peers={"a bare route": figures["a bare route"]["p99"]},
            details=figures,
            settings={"letters": held.count, "times": many, "peer": "as many bytes by Litestar and uvicorn alone"},
        )

    return measure


def _calmest(rounds: list[Asked]) -> Numbers:
    """The latencies of the calmest round, and the least CPU: a neighbour's work is not in our answer."""
    figures = min((asked.figures for asked in rounds), key=lambda figures: figures["p99"])
    return {**figures, "cpu": round(min(asked.cpu for asked in rounds) * 1e3, 3)}


def rate(scale: Scale) -> Measured:
    """Pages of 50 letters that one process answers in a second, asked over four connections."""
    held, seconds = _file(scale), 0.3 if scale.quick else 5.0
    found = []
    with served(held.path) as server:
        for _ in range(scale.rounds):
            before, began, end = server.cpu(), time.perf_counter(), threading.Event()
            with ThreadPoolExecutor(4) as pool:
                asking = [pool.submit(_until, server, end) for _ in range(4)]
                time.sleep(seconds)
                end.set()
                answered = sum(done.result() for done in asking)
            took = time.perf_counter() - began
            found.append((answered / took, (server.cpu() - before) / answered))
            say(f"  {found[-1][0]:.0f} a second, {found[-1][1] * 1e3:.2f} ms of CPU for each")
    best, cpu = max(found)[0], min(cpu for _, cpu in found)
    details = {"cpu_ms": round(cpu * 1e3, 3), "a_second_on_a_core_alone": round(1 / cpu), "peer": "what is asked of it"}
    return Measured(redrive=best, peers={"asked": 300}, details=details, settings={"letters": held.count})


def _until(server: Served, end: threading.Event) -> int:
    answered = 0
    while not end.is_set():
        server.ask(_LETTERS, 10, token=server.listening.admin)
        answered += 12  # those to warm up are answered, too
    return answered


def _LETTERS(number: int) -> str:
    return "/api/letters"


def access(scale: Scale) -> Measured:
    """CPU for a page of letters that is asked for with a token, beside the same page from a route that asks for none;
    and for one that a scope narrows, beside the same letters by a token that reaches everything."""
    held, times = _file(scale), scale.of(100, 5)
    narrow = "?sources=mail.notices"
    same = f"{narrow}&tenants=acme&tenants=globex&tenants=hooli"
    spent: dict[str, list[float]] = {"token": [], "open": [], "scope": [], "token, same letters": []}
    with served(held.path) as server:
        ways = {
            "token": ("/api/letters", server.listening.admin),
            "open": ("/open/letters", None),
            "scope": (f"/api/letters{narrow}", server.listening.scoped),
            "token, same letters": (f"/api/letters{same}", server.listening.admin),
        }
        for _ in range(max(scale.rounds, 1)):
            for name, (path, token) in ways.items():
                spent[name].append(server.ask(lambda number: path, times, token=token).cpu)  # noqa: B023
            say(f"  { ({name: round(some[-1] * 1e3, 3) for name, some in spent.items()}) }")
    ms = {name: round(min(some) * 1e3, 3) for name, some in spent.items()}
    more = max(ms["token"] / ms["open"], ms["scope"] / ms["token, same letters"])
    peers = {"without the token, without the scope": 1.0}
    return Measured(redrive=more, peers=peers, details={"cpu_ms": ms}, settings={"letters": held.count, "times": times})


# -- in the browser, and while nobody looks ----------------------------------------------------------------------------


def _page(name: str, asked_ms: float) -> Callable[[Scale], Measured]:
    def measure(scale: Scale) -> Measured:
        held = _file(scale)
        with served(held.path) as server:
            letter = _known(server, held.count).letters[7]
            took = opened(server.listening, name, letter, scale.of(10, 1))
        figures = {"ms": sorted(round(each) for each in took)}
        return Measured(
            redrive=sorted(took)[len(took) // 2],
            peers={"asked": asked_ms},
            details={**figures, "peer": "what is asked of it"},
            settings={"letters": held.count, "browser": "Chromium, from the click on a link to its last row"},
        )

    return measure


def idle(scale: Scale) -> Measured:
    """The share of a core that the server takes while ten overviews are open and nothing dies."""
    held, seconds = _file(scale), 60.0 if not scale.quick else 4.0
    with served(held.path) as server:
        before = server.cpu()
        time.sleep(seconds / 4)
        alone = (server.cpu() - before) / (seconds / 4)
        with idle_consoles(server.listening, scale.of(10, 2)):
            before, began = server.cpu(), time.perf_counter()
            time.sleep(seconds)
            share = (server.cpu() - before) / (time.perf_counter() - began)
    return Measured(
        redrive=share * 100,
        peers={"asked": 5.0},
        details={"with_none_open": round(alone * 100, 3), "peer": "what is asked of it"},
        settings={"letters": held.count, "seconds": seconds},
    )


def size(scale: Scale) -> Measured:
    """Kilobytes of scripts and styles, compressed as they are sent."""
    sent = {path: asset for path, asset in assets().items() if path.endswith((".js", ".css"))}
    packed, plain = (sum(len(part) for part in parts) / 1024 for parts in _sizes(sent.values()))
    details: dict[str, Any] = {"plain_kb": round(plain), "files": len(sent), "peer": "what is asked of it"}
    return Measured(redrive=packed, peers={"asked": 250.0}, details=details)


def _sizes(sent: Any) -> tuple[list[bytes], list[bytes]]:
    found = list(sent)
    return [asset.packed for asset in found], [asset.plain for asset in found]


def _most(name: str) -> float:
    return _TEXT_MS if name.startswith("letters-text") else _ASKED_MS


CELLS = (
    *(
        Cell(
            name=f"console/{name}",
            unit="ms p99",
            measure=_request(path, 200),
            target=Target(most=_most(name)),
            less_is_better=True,
        )
        for name, path in PATHS.items()
    ),
    Cell(name="console/rate", unit="requests/s", measure=rate, target=Target(ratio=1)),
    Cell(name="console/access", unit="×", measure=access, target=Target(most=1.1), less_is_better=True),
    *(
        Cell(
            name=f"console/open-{name}",
            unit="ms",
            measure=_page(name, asked_ms),
            target=Target(most=asked_ms),
            less_is_better=True,
        )
        for name, (_, _, asked_ms) in OPENED.items()
    ),
    Cell(name="console/idle", unit="% of a core", measure=idle, target=Target(most=5), less_is_better=True),
    Cell(name="console/size", unit="KB", measure=size, target=Target(most=250), less_is_better=True),
)
