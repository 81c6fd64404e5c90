"""One message through a handler under a debugger: it stops at the handler's first line, and again where it fails."""

from __future__ import annotations

import asyncio
import bdb
import inspect
import pdb
import sys
import traceback
from types import CodeType
from typing import Any

from redrive.debugging.handlers import Found
from redrive.debugging.trying import handled
from redrive.errors import MissingExtra, UsageError
from redrive.flow.callables import function_of
from redrive.model import Message


def code_of(found: Found) -> CodeType | None:
    """The code of the handler's own function, below partials and decorators; None for what is not written in Python."""
    function = found.handler.function
    inner: Any = None if function is None else inspect.unwrap(function_of(function))
    return getattr(inspect.unwrap(inner), "__code__", None) if inner is not None else None


def under_pdb(found: Found, message: Message) -> BaseException | None:
    """Run it under pdb. Returns what it failed with, after a look at the place; None: it succeeds, or somebody quit."""
    debugger = pdb.Pdb(nosigint=True)
    code = code_of(found)
    if code is not None:
        debugger.set_break(code.co_filename, code.co_firstlineno, temporary=True, funcname=code.co_name)
    with found.app.in_this_thread():
        try:
            _traced(debugger, found, message)
        except bdb.BdbQuit:
            return None
        except BaseException as error:
            traceback.print_exception(error)
            place = pdb.Pdb(nosigint=True)
            place.reset()
            place.interaction(None, error.__traceback__)
            return error
    return None


def _traced(debugger: pdb.Pdb, found: Found, message: Message) -> None:
    """Run it with the debugger's eyes on it: it stops at its breakpoint, and nowhere before."""
    debugger.reset()
    debugger.botframe = sys._getframe()
    debugger.set_continue()
    sys.settrace(debugger.trace_dispatch)
    try:
        asyncio.run(handled(found, message))
    finally:
        sys.settrace(None)


def under_debugpy(found: Found, message: Message, host: str, port: int, say: Any) -> BaseException | None:
    """Run it when an editor has attached itself; returns what it failed with."""
    try:
        import debugpy
    except ImportError as error:
        raise MissingExtra("the debugger debugpy", "debug") from error
    try:
        host, port = debugpy.listen((host, port))
    except (OSError, RuntimeError) as error:
        raise UsageError(f"debugpy cannot listen on {host}:{port}: {error}") from error
    say(f"Attach your editor to {host}:{port}; the handler runs when it is there.")
    debugpy.wait_for_client()
    with found.app.in_this_thread():
        try:
            debugpy.breakpoint()
            asyncio.run(handled(found, message))
        except BaseException as error:
            traceback.print_exception(error)
            return error
    return None
