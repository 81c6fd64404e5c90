"""The fingerprint of a failure: what two failures share if they have one cause.

That is the error's type and code, its message without what varies, and where in the user's own code it happened.
Not the source (one cause over two queues is one cause) and no line numbers (a deploy must not split a group).

Of a failure that another program had and whose trace says where it was thrown (`flow.foreign`), the message counts for
nothing: what varies in it cannot be told from the outside. Type, code, category, place and root cause do.
"""

from __future__ import annotations

import linecache
import os
import re
import sysconfig
from base64 import b32encode
from collections.abc import Callable, Iterator
from enum import Enum
from functools import lru_cache
from hashlib import blake2b
from itertools import dropwhile
from traceback import FrameSummary, StackSummary, TracebackException
from types import CodeType, FrameType

from redrive.model import Failure


class _Owner(Enum):
    USER = "user"
    LIBRARY = "library"
    REDRIVE = "redrive"


_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_DEMO = os.path.join(_HERE, "demo") + os.sep  # its handlers are what a user writes
_LIBRARIES = tuple(
    {
        os.path.dirname(os.__file__) + os.sep,
        *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    }
)
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_TYPED_IN = ("<stdin>", "<console>", "<ipython", "<doctest")  # code without a file that a person wrote
_NOISE = re.compile(r"<(?:locals|listcomp|setcomp|dictcomp|genexpr)>\.?")
"""Python 3.12 has no frames for comprehensions: naming them would split groups between versions."""

_TITLE = "Traceback (most recent call last):"
_PLACE = re.compile(r'(?m)^[ \t]*+File "(?P<file>[^"\n]{1,1000})", line \d{1,9}, in (?P<name>[^\n]{1,200})$')
_TALKATIVE = (BaseExceptionGroup, SyntaxError, NameError, AttributeError, ImportError)  # Python adds to these
FOREIGN = "at "
"""How a frame begins that another program's trace names; ours are `module:function`."""
_READ, _KEPT = 1000, 500
_SLOT = "#"
_SHAPES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    # what stands behind the ? of a URL
    (re.compile(r"(://[^\s?'\"<>]*\?)[^\s'\"<>]+"), rf"\1{_SLOT}"),
    # e-mail addresses
    (re.compile(r"(?<![\w.+%-])[\w.+%-]++@[\w.-]++"), _SLOT),
    # paths of files
    (re.compile(r"(?<![\w/.:#-])(?:~|\.{1,2})?(?:/[\w.@+#-]++){2,}+/?"), _SLOT),
    (re.compile(r"\b[A-Za-z]:\\[^\s'\"<>|]+"), _SLOT),
    # UUIDs, then IPv6 and MAC addresses, then long hex
    (re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"), _SLOT),
    (re.compile(r"(?<![\w:])(?:[0-9a-fA-F]{0,4}:){2,8}[0-9a-fA-F]{0,4}(?![\w:])"), _SLOT),
    (re.compile(r"\b[0-9a-fA-F]{8,}+\b"), _SLOT),
    # any word with a digit in it: numbers, ids, ULIDs, parts of a time
    (re.compile(r"\b(?=[^\W\d]*+\d)\w++"), _SLOT),
    # what these leave of `-1.5e-3`, `10.0.0.1:80`, `2024-01-02 10:00:00`, `[1, 2, 3]`
    (re.compile(rf"(?:(?<!\w)[-+])?{_SLOT}(?:[-+.,:;/]? ?[-+]?{_SLOT})*"), _SLOT),
    # quoted text: 'customer_id' is a name and part of the cause, 'Ann Lee' and '4711' are values
    (re.compile(r"(?<!\w)(['\"`])(?![A-Za-z_][A-Za-z_.-]*+\1)(?:(?!\1).)++\1(?!\w)"), rf"\1{_SLOT}\1"),
)


def fingerprint(failure: Failure) -> str:
    """A short id, the same for every failure with that cause, in every process and on every day."""
    foreign = bool(failure.frames) and failure.frames[0].startswith(FOREIGN)
    text = failure.category if foreign else normalise(failure.message)
    parts = (failure.type, failure.code or "", text, *failure.frames)
    digest = blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=10).digest()
    return b32encode(digest).decode().lower()[:12]


def normalise(message: str) -> str:
    """The message without what varies from one failure to the next. Doing it twice changes nothing.

    Every varying part becomes the same `#`: with one mark per kind, an id that happens to be all digits would
    fall into another group. It repeats until nothing changes, and ends because each round only takes away.
    """
    return _normalised(message[:_READ])


@lru_cache(maxsize=1024)
def _normalised(text: str) -> str:
    """`normalise`, cached: the same trouble says the same again and again."""
    while (simpler := _simplified(text)[:_KEPT].strip()) != text:
        text = simpler
    return text


def _simplified(text: str) -> str:
    text = " ".join(text.split())
    for shape, slot in _SHAPES:
        text = shape.sub(slot, text)
    return text


def own_frames(error: BaseException, limit: int = 3) -> tuple[str, ...]:
    """The innermost frames of the user's own code as `module:function`, innermost last.

    Where none is the user's (an application installed as a package), those of libraries; never those of Redrive.
    """
    frames = [(_owner(frame.f_code.co_filename), frame) for frame in _frames(error)]
    own = [frame for owner, frame in frames if owner is _Owner.USER]
    chosen = own or [frame for owner, frame in frames if owner is _Owner.LIBRARY]
    return _innermost(chosen, limit)


def frames_in(stack: str, limit: int = 3) -> tuple[str, ...]:
    """As `own_frames`, from a traceback that Python printed on this machine: files stand for modules there. Of several
    that are linked the last one counts, as it does in `own_frames`."""
    last = stack.rpartition(_TITLE)[2]
    frames = [(_owner(place["file"]), _file_frame(place)) for place in _PLACE.finditer(last)]
    own = [name for owner, name in frames if owner is _Owner.USER]
    chosen = own or [name for owner, name in frames if owner is _Owner.LIBRARY]
    return tuple([name for number, name in enumerate(chosen) if number == 0 or chosen[number - 1] != name][-limit:])


def _file_frame(place: re.Match[str]) -> str:
    module = os.path.splitext(os.path.basename(place["file"]))[0]
    return f"{module}:{_function(place['name'])}"


def _frames(error: BaseException) -> Iterator[FrameType]:
    step = error.__traceback__
    while step is not None:
        yield step.tb_frame
        step = step.tb_next


def _innermost(frames: list[FrameType], limit: int) -> tuple[str, ...]:
    """Repeats in a row count once: how deep a recursion went is not its cause."""
    names: list[str] = []
    for frame in reversed(frames):
        name = _name(frame)
        if not names or names[-1] != name:
            names.append(name)
        if len(names) == limit:
            break
    return tuple(reversed(names))


def _name(frame: FrameType) -> str:
    module = str(frame.f_globals.get("__name__", "?"))
    if module == "__main__":  # the same file run as a script and imported is the same code
        module = os.path.splitext(os.path.basename(frame.f_code.co_filename))[0]
    return f"{module}:{_function(frame.f_code.co_qualname)}"


@lru_cache(maxsize=4096)
def _function(qualname: str) -> str:
    return _NOISE.sub("", qualname).rstrip(".").replace("<lambda>", "lambda")


@lru_cache(maxsize=4096)
def _owner(filename: str) -> _Owner:
    if filename.startswith(_HERE):
        return _Owner.USER if filename.startswith(_DEMO) else _Owner.REDRIVE
    generated = filename.startswith("<") and not filename.startswith(_TYPED_IN)
    if generated or filename.startswith(_LIBRARIES) or any(part in filename for part in _INSTALLED):
        return _Owner.LIBRARY
    return _Owner.USER


def stack_text(error: BaseException, limit: int = 32_000) -> str:
    """The traceback with its causes, as Python prints it, from where the user's code begins. Never raises."""
    try:
        text = _formatted(error)
    except Exception:  # an error that cannot even be printed is still an error to report
        text = f"{type(error).__name__}: its traceback cannot be shown\n"
    return _clipped(text.encode("utf-8", "backslashreplace").decode(), limit)


def _formatted(error: BaseException) -> str:
    return _plainly(error) or _fully(error)


def _plainly(error: BaseException) -> str | None:
    """The same for an error that stands alone, ten times as fast: a line of code has one text, made once.

    None where Python would say more: causes, members, notes, suggestions, lines that repeat.
    """
    hidden = error.__context__ is None or error.__suppress_context__
    if error.__cause__ is not None or not hidden or isinstance(error, _TALKATIVE) or hasattr(error, "__notes__"):
        return None
    places = list(_places(error))
    if len(set(places)) < len(places):
        return None
    own = list(dropwhile(lambda place: _owner(place[0].co_filename) is _Owner.REDRIVE, places)) or places
    head = "Traceback (most recent call last):\n" if own else ""
    return head + "".join([_line(*place) for place in own]) + _last_line(error)


def _last_line(error: BaseException) -> str:
    kind, text = type(error), str(error)
    own = kind.__module__ in ("builtins", "__main__")
    name = kind.__qualname__ if own else f"{kind.__module__}.{kind.__qualname__}"
    return f"{name}: {text}\n" if text else f"{name}\n"


def _places(error: BaseException) -> Iterator[tuple[CodeType, int]]:
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        linecache.lazycache(code.co_filename, step.tb_frame.f_globals)  # its module may not come from a file
        yield code, step.tb_lineno
        step = step.tb_next


@lru_cache(maxsize=4096)
def _line(code: CodeType, number: int) -> str:
    """How Python prints that place. A module that is loaded again has other code, and so another text."""
    linecache.checkcache(code.co_filename)
    return "".join(StackSummary.from_list([FrameSummary(code.co_filename, number, code.co_name)]).format())


def _fully(error: BaseException) -> str:
    report = TracebackException.from_exception(error)
    for part in _parts(report):
        frames = list(dropwhile(lambda frame: _owner(frame.filename) is _Owner.REDRIVE, part.stack))
        part.stack[:] = frames or part.stack
        for frame in part.stack:
            frame.colno = None  # marks under the line: they take two thirds of the time
    return "".join(report.format())


def _parts(report: TracebackException) -> Iterator[TracebackException]:
    """The report of an error, and those of its causes and members."""
    waiting = [report]
    while waiting:
        part = waiting.pop()
        yield part
        linked = (part.__cause__, part.__context__, *(part.exceptions or ()))
        waiting += (link for link in linked if link is not None)


def _clipped(text: str, limit: int) -> str:
    """The text cut in the middle: its head says where it began, its tail what it came to."""
    if len(text) <= limit:
        return text
    note = f"\n… {len(text) - limit:,} characters left out …\n"
    kept = max(limit - len(note), 0)
    head = kept // 3
    return (text[:head] + note + text[len(text) - (kept - head) :])[:limit]
