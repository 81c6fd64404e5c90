"""The child of a repair: loads the user's script and runs its `repair(message)` on one message after the other.

It is run by its path and imports nothing of Redrive, so that it starts quickly, and that the script finds what it
would find by itself. What it prints goes to standard error; the wire to the parent is nothing that it can write to by
accident. The last line of the script that ran is noted in a few bytes of shared memory: whatever ends this process, the
parent can name it. Where nobody is left to end it, a timer does.

    python script.py FILE LINE_FILE MEMORY SECONDS

A frame is the length of a JSON head and of a body, 4 and 8 bytes, then both.
"""

from __future__ import annotations

import inspect
import json
import mmap
import os
import signal
import struct
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, BinaryIO

LENGTHS = struct.Struct(">IQ")
LINE = struct.Struct("=Q")  # in the order of this machine: written whole, in one step
_FORBIDDEN = (
    *("os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "os.exec", "subprocess.Popen"),
    *("os.kill", "os.killpg", "pty.spawn"),
)
_LATE = 10.0  # seconds after which nobody has ended us who should have
_RETURNS = "return the message, a new body (bytes, str, dict or list), or None to leave it as it is"


class Message:
    """What `repair` is given: body and headers can be changed, the rest is for looking at."""

    def __init__(self, head: dict[str, Any], body: bytes) -> None:
        self.id: str = head["id"]
        self.source: str = head["source"]
        self.key: bytes | None = _bytes(head["key"])
        self.tenant: str | None = head["tenant"]
        self.error: str = head["error"]
        self.body = body
        self.headers: dict[str, bytes] = {name: value.encode("latin-1") for name, value in head["headers"]}
        self._was = (body, dict(self.headers))
        self._json: Any = _NOTHING

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    @text.setter
    def text(self, text: str) -> None:
        self.body = text.encode()

    @property
    def json(self) -> Any:
        """The body as JSON. What is changed in it is written back."""
        if self._json is _NOTHING:
            self._json = json.loads(self.body)
        return self._json

    @json.setter
    def json(self, value: Any) -> None:
        self._json = value

    @property
    def is_changed(self) -> bool:
        return (self.new_body(), self.headers) != self._was

    def new_body(self) -> bytes:
        """The body as it is now. JSON that was only looked at keeps its bytes."""
        if self._json is _NOTHING or (self.body == self._was[0] and _same_json(self._json, self._was[0])):
            return self.body
        return _encoded(self._json, self._was[0])

    def changed_headers(self) -> dict[str, str | None]:
        """The headers that differ; None is one that is gone."""
        was = self._was[1]
        new = {name: _header(name, value) for name, value in self.headers.items() if was.get(name) != value}
        return {**dict.fromkeys(was.keys() - self.headers.keys()), **new}


_NOTHING = object()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("latin-1")


def _same_json(value: Any, body: bytes) -> bool:
    return json.dumps(value, sort_keys=False) == json.dumps(json.loads(body), sort_keys=False)


def _encoded(value: Any, like: bytes) -> bytes:
    """The value as JSON, spaced as the body was."""
    try:
        spaced = json.dumps(json.loads(like), ensure_ascii=False).encode() == like
    except ValueError:
        spaced = False
    gaps = (", ", ": ") if spaced else (",", ":")
    return json.dumps(value, ensure_ascii=False, separators=gaps, allow_nan=False).encode()


def _header(name: str, value: object) -> str:
    if isinstance(value, str):
        value = value.encode()
    if not isinstance(name, str) or not isinstance(value, bytes):
        raise TypeError(f"the header {name!r} is a {type(value).__name__}: headers are bytes or str")
    return value.decode("latin-1")


class Child:
    """The loop of this process."""

    def __init__(self, path: str, line: memoryview) -> None:
        self._path = path
        self._line = line
        self._function: Callable[[Message], Any] | None = None

    def load(self) -> dict[str, Any]:
        """Run the script once, and take its function."""
        space: dict[str, Any] = {"__name__": "repair_script", "__file__": self._path}
        try:
            with open(self._path, "rb") as file:
                code: CodeType = compile(file.read(), self._path, "exec")
            self._traced(lambda: exec(code, space))  # noqa: S102 - the script is whose it is who runs this
            self._function = _function_of(space, self._path)
        except BaseException as error:
            return self._failed(error)
        return {"status": "ready"}

    def run(self, head: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        """One message: what became of it."""
        message = Message(head, body)
        assert self._function is not None
        function = self._function
        try:
            given = self._traced(lambda: function(message))
            return self._answer(message, given)
        except BaseException as error:
            return self._failed(error), b""

    def _answer(self, message: Message, given: Any) -> tuple[dict[str, Any], bytes]:
        if given is None:
            if message.is_changed:
                raise ValueError("it changed the message and returned nothing: end it with `return message`")
            return {"status": "unchanged"}, b""
        if given is not message:
            message._json = _NOTHING
            message.body = _body_of(given, message._was[0])
        new, headers = message.new_body(), message.changed_headers()
        if not isinstance(new, bytes):
            raise TypeError(
                f"the body is a {type(new).__name__}: it has to be bytes (message.json, message.text set it)"
            )
        status = "changed" if headers or new != message._was[0] else "unchanged"
        return {"status": status, "headers": headers}, new if status == "changed" else b""

    def _failed(self, error: BaseException) -> dict[str, Any]:
        said = str(error).strip().splitlines()
        return {
            "status": "failed",
            "why": f"{type(error).__name__}: {said[0] if said else ''}",
            "line": self._place(error),
        }

    def _place(self, error: BaseException) -> int:
        if isinstance(error, SyntaxError) and error.filename == self._path:
            return error.lineno or 0
        place, found = error.__traceback__, 0
        while place is not None:
            if place.tb_frame.f_code.co_filename == self._path:
                found = place.tb_lineno
            place = place.tb_next
        return found or int(self._line[0])

    def _traced(self, work: Callable[[], Any]) -> Any:
        def note(frame: FrameType, event: str, argument: Any) -> Any:
            if frame.f_code.co_filename != self._path:
                return None
            self._line[0] = frame.f_lineno or 0  # not `pack_into`, which clears it first: the parent may look just then
            return note

        sys.settrace(note)
        try:
            return work()
        finally:
            sys.settrace(None)


def _function_of(space: dict[str, Any], path: str) -> Callable[[Message], Any]:
    function = space.get("repair")
    if not callable(function):
        raise NameError(f"{os.path.basename(path)} has no function `repair(message)`")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError("`repair` is async or yields: write it as a plain function")
    return function  # type: ignore[no-any-return]


def _body_of(given: Any, like: bytes) -> bytes:
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, dict | list):
        return _encoded(given, like)
    raise TypeError(f"repair() returned a {type(given).__name__}: {_RETURNS}")


def read_frame(wire: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    """The next frame; None when nobody sends any more."""
    lengths = wire.read(LENGTHS.size)
    if len(lengths) < LENGTHS.size:
        return None
    head, body = LENGTHS.unpack(lengths)
    return json.loads(wire.read(head)), wire.read(body)


def frame_of(head: dict[str, Any], body: bytes = b"") -> bytes:
    """A frame, as `read_frame` reads it."""
    text = json.dumps(head).encode()
    return LENGTHS.pack(len(text), len(body)) + text + body


def _limit_memory(most: int) -> None:
    try:
        import resource

        with open("/proc/self/statm", "rb") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + most, used + most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, OSError, ValueError):  # a system without such limits
        pass


def _refuse_processes(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _FORBIDDEN:
        raise PermissionError(f"a repair starts and ends no processes ({event})")


def main(path: str, line_file: str, memory: str, seconds: str) -> None:
    """Answer frames until there are no more."""
    wire_in, wire_out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.path[0] = os.path.dirname(os.path.abspath(path))  # and not where this file is
    with open(line_file, "r+b") as file:
        line = memoryview(mmap.mmap(file.fileno(), LINE.size)).cast("Q")
    _limit_memory(int(memory))
    sys.addaudithook(_refuse_processes)
    child, mine = Child(path, line), os.getpid()
    answer, body = child.load(), b""
    while True:
        if os.getpid() != mine:  # a fork that no hook saw
            os._exit(1)
        wire_out.write(frame_of(answer, body))
        wire_out.flush()
        asked = read_frame(wire_in)
        if asked is None:
            return
        signal.setitimer(signal.ITIMER_REAL, float(seconds) + _LATE)
        answer, body = child.run(*asked)
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main(*sys.argv[1:5])
