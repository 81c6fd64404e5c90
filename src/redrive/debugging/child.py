"""The process of a shadow replay: `python -m redrive.debugging.child MODULE:HANDLER`.

Messages come on its standard input and answers go to its standard output; before any code of the user's is imported
both are moved out of its reach, and what it prints goes nowhere. What it starts ends with it: the process is the leader
of a group of its own, which is ended as a whole.
"""

from __future__ import annotations

import asyncio
import os
import sys
from io import BufferedReader, BufferedWriter

from redrive.debugging.handlers import Found, find_handler
from redrive.debugging.isolation import Isolation, isolate
from redrive.debugging.trying import check, tried
from redrive.debugging.wire import LENGTH, Ready, Refused, Tried, framed, message_in
from redrive.errors import RedriveError
from redrive.forensics.fingerprint import fingerprint
from redrive.model import Message


def main() -> None:
    messages, answers = _pipes()
    isolation = isolate(dry=True)
    sys.argv = sys.argv[:2]
    asyncio.run(_serve(sys.argv[1], messages, answers, isolation))
    os._exit(0)  # threads of a handler that hangs would keep it


async def _serve(target: str, messages: BufferedReader, answers: BufferedWriter, isolation: Isolation) -> None:
    found: Found | None = None
    while (message := _next(messages)) is not None:
        try:
            if found is None or found.handler.source != message.source:
                found = find_handler(target, message.source)
                check(found.handler)
                _say(answers, framed(Ready(found.handler.timeout.total_seconds())))
        except RedriveError as error:
            _say(answers, framed(Refused(str(error))))
            return
        _say(answers, framed(await _tried(found, message, isolation)))


async def _tried(found: Found, message: Message, isolation: Isolation) -> Tried:
    me = os.getpid()
    failure = await tried(found, message)
    if os.getpid() != me:
        os._exit(0)  # the handler forked, and this is the copy: it has nothing to say
    return Tried(failure, "" if failure is None else fingerprint(failure), isolation.sources())


def _pipes() -> tuple[BufferedReader, BufferedWriter]:
    """Our two ends, out of the handler's reach: what it reads and prints is nothing."""
    messages, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for place in (0, 1, 2):
        os.dup2(nothing, place)
    os.close(nothing)
    return messages, answers


def _next(messages: BufferedReader) -> Message | None:
    head = messages.read(LENGTH)
    return message_in(messages.read(int.from_bytes(head, "big"))) if len(head) == LENGTH else None


def _say(answers: BufferedWriter, data: bytes) -> None:
    answers.write(data)
    answers.flush()


if __name__ == "__main__":
    main()
