"""What redaction costs: a large body, bodies made to be slow, and what the event loop sees of it."""

from __future__ import annotations

import asyncio
import json
import re
import time
from asyncio import events
from collections.abc import Callable
from random import Random
from typing import Any

from benchmarks.harness import Cell, Measured, Scale, Target, side_by_side
from redrive import Redrive
from redrive.forensics.redact import Redactor
from redrive.service import Service
from redrive.testing.builders import make_failure, make_letter, make_message

_PEER = re.compile(
    r"(?i)\b\w*(?:password|passwd|secret|token|api_?key|credential|authorization)\w*[\"']?\s*[:=]\s*[\"']?[^\s\"',;&]+"
    r"|\b(?:ghp_|xox[abp]-|sk_live_|AKIA|eyJ)[\w.-]{16,}|\b\d{13,16}\b|://[^\s:/@]+:[^\s@]+@"
)


def body(scale: Scale) -> Measured:
    """ms of CPU for a body of 1 MB of JSON, all of it looked at and shown."""
    size = scale.of(1 << 20, 1 << 14)
    text = _orders(size)
    data, redactor = text.encode(), Redactor()
    figures = side_by_side(
        {
            "redrive": lambda: _cpu(lambda: redactor.body(data, limit=2 * size)),
            "a bare re.sub": lambda: _cpu(lambda: _PEER.sub("[redacted]", data.decode())),
        },
        scale.rounds,
    )
    return Measured(
        redrive=figures.pop("redrive"),
        peers=figures,
        settings={"bytes": len(data)},
        details={"peer": "seven keys and nine looks in one pattern: no carriers, no sums, no escapes"},
    )


def hostile(scale: Scale) -> Measured:
    """By how much the CPU grows, at worst, when a text made to be slow is twice as long."""
    size, redactor = scale.of(1 << 18, 1 << 12), Redactor()
    grown, slow = {}, {}
    for name, piece in _HOSTILE.items():
        text = (piece * (size // len(piece) + 1))[:size]
        times = [min(_cpu(lambda: redactor.text(part)) for _ in range(3)) for part in (text[: size // 2], text)]  # noqa: B023
        grown[name], slow[name] = round(times[1] / times[0], 2), round(times[1], 1)
    return Measured(
        redrive=max(grown.values()), peers={}, settings={"characters": size}, details={"ms": slow, "x": grown}
    )


def loop(scale: Scale) -> Measured:
    """ms of CPU that the event loop is busy at a time, at most, while letters of 1 MB are shown and listed."""
    return Measured(redrive=asyncio.run(_shown(scale)), peers={}, settings={"letters": 8})


async def _shown(scale: Scale) -> float:
    app = Redrive(transport="memory://", store="memory://")
    async with app:
        service = Service(app)
        bodies = [_orders(scale.of(1 << 20, 1 << 14)), "[" + "1," * scale.of(500_000, 5_000)] * 4
        failure = make_failure(stack="  File x, password: hunter2Xq\n" * 1000)
        letters = [
            make_letter(message=make_message(id=str(number), body=text.encode()), failures=(failure,), id=str(number))
            for number, text in enumerate(bodies)
        ]
        await app.store.letters.record(letters)
        ids = [letter.id for letter in letters]
        with _Steps() as steps:
            for id in ids:
                await service.letter(id)
        return steps.longest


class _Steps:
    """The longest step of the event loop, by the CPU of its thread."""

    def __enter__(self) -> _Steps:
        self.longest, self._run = 0.0, events.Handle._run
        run = self._run

        def timed(handle: Any) -> None:
            began = time.thread_time()
            run(handle)
            self.longest = max(self.longest, (time.thread_time() - began) * 1000)

        setattr(events.Handle, "_run", timed)  # noqa: B010  # there is no other way to see each step
        return self

    def __exit__(self, *error: object) -> None:
        setattr(events.Handle, "_run", self._run)  # noqa: B010


def _cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1000


def _orders(size: int) -> str:
    rng, lines, length = Random(7), list[dict[str, Any]](), 0
    while length < size:
        line = {
            "id": rng.randrange(10**6),
            "ref": f"{rng.getrandbits(128):032x}",
            "name": "Ann Example",
            "email": "ann@example.org",
            "note": "two chairs and a table, to be left at the door",
            "items": [rng.randrange(100) for _ in range(5)],
            "token_count": 4,
            "at": "2026-01-02T03:04:05Z",
        }
        if rng.random() < 0.02:
            line["password"] = "hunter2Xq"
        lines.append(line)
        length += len(json.dumps(line)) + 2
    return json.dumps(lines)[:size]


_HOSTILE = {
    "quotes": '"',
    "backslashes": "\\",
    "brackets": "[",
    "objects": '{"a":',
    "ones": "1,",
    "password=": "password=",
    "password= quoted": "password='",
    "password: ": "password: ",
    "objects under a key": '{"password":[',
    "escaped keys": '\\"password\\":\\"',
    "elements": "<password>",
    "pairs": '{"name":"password",',
    "parts of a form": 'name="password"\r\n',
    "options": "--password ",
    "URLs": "://a:",
    "URLs with @": "://a:b/@",
    "private keys": "-----BEGIN PRIVATE KEY-----",
    "tokens": "eyJaaaaaaaaaa.",
    "digits": "4",
    "IBANs": "DE00 ",
    "escapes": "\\u0070",
    "percents": "%41",
    "percents that are none": "%",
}


CELLS = (
    Cell(name="redaction/body", unit="ms of CPU", measure=body, target=Target(most=50), less_is_better=True),
    Cell(name="redaction/hostile", unit="×", measure=hostile, target=Target(most=3), less_is_better=True),
    Cell(name="redaction/loop", unit="ms of CPU", measure=loop, target=Target(most=5), less_is_better=True),
)
