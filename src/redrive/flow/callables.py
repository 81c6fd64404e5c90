"""What a user may give as code to call: a function, method, partial or callable object. Its name, and where it is."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from redrive.errors import ConfigError, HandlerRefused

_OURS = str(Path(__file__).parent.parent) + os.sep


def function_of(code: Callable[..., Any]) -> Callable[..., Any]:
    """The function that runs: of a partial the one it calls, of an object its `__call__`."""
    while isinstance(code, functools.partial):
        code = code.func
    if inspect.isroutine(code) or inspect.isclass(code):
        return code
    return type(code).__call__ if callable(code) else code


def is_async(code: Callable[..., Any]) -> bool:
    """Whether a call of it gives a coroutine: of a function, or of an object whose `__call__` is async."""
    return inspect.iscoroutinefunction(code) or inspect.iscoroutinefunction(function_of(code))


def name_of(code: Callable[..., Any]) -> str:
    """How a person finds it: `shop:charge`, or `shop:Charger` for an object of that class."""
    while isinstance(code, functools.partial):
        code = code.func
    named = code if hasattr(code, "__qualname__") else type(code)
    return f"{getattr(named, '__module__', '?')}:{named.__qualname__}"


@contextmanager
def refusing(code: Callable[..., Any]) -> Iterator[None]:
    """Let whatever is wrong with a handler name the file and the line where the user wrote it."""
    try:
        yield
    except HandlerRefused:
        raise
    except ConfigError as error:
        place = _place_of(code) or _caller()
        raise HandlerRefused(f"{error} ({place})" if place else str(error)) from error


def _place_of(code: Callable[..., Any]) -> str:
    """Where its code stands; nothing for what is not written in Python, or is part of Redrive itself."""
    function = inspect.unwrap(function_of(code)) if callable(code) else None
    inner = getattr(function, "__code__", None)
    if inner is None or inner.co_filename.startswith(_OURS):
        return ""
    return _place(inner.co_filename, inner.co_firstlineno)


def _caller() -> str:
    """The innermost line that is not Redrive's own."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_OURS) and Path(name).name != "contextlib.py":
            return _place(name, frame.f_lineno)
        frame = frame.f_back
    return ""


def _place(file: str, line: int) -> str:
    path = Path(file)
    here = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{here}, line {line}"
