"""Which handler MODULE:NAME names in the user's code, or which there are."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from redrive.app import Redrive
from redrive.errors import UsageError, nearest
from redrive.flow.callables import name_of
from redrive.flow.context import Handler

_HINT = "name it as MODULE:HANDLER, such as shop:charge"


class Found(NamedTuple):
    """A handler and its app."""

    app: Redrive
    handler: Handler


def find_handler(target: str, source: str) -> Found:
    """The handler of `shop:charge`, by the name of its function or of its source; of `shop:app`, or of `shop` alone,
    the one for that source. A function that is no handler of any app is taken as one for that source."""
    module_name, _, name = target.partition(":")
    module = _module(module_name)
    found = [Found(app, handler) for app in _apps(module) for handler in app.handlers.values()]
    value = _value(module, name)
    if not name or isinstance(value, Redrive):
        apps = [value] if isinstance(value, Redrive) else _apps(module)
        chosen = [each for each in found if each.app in apps and each.handler.source == source]
    else:
        chosen = [each for each in found if _is_called(each.handler, name, value)]
    if not chosen and callable(value) and not isinstance(value, Redrive | type):
        return _for_now(value, source)
    if not chosen:
        raise UsageError(f"{target!r}: {_missing(module, name, source, found)}")
    return next((each for each in chosen if each.handler.source == source), chosen[0])


def _is_called(handler: Handler, name: str, value: Any) -> bool:
    return handler.source == name or (callable(value) and name_of(value) == handler.name)


def _for_now(function: Any, source: str) -> Found:
    app = Redrive(transport="memory://", store="memory://")
    app.handler(source)(function)
    return Found(app, app.handlers[source])


def _missing(module: ModuleType, name: str, source: str, found: list[Found]) -> str:
    there = [f"{each.handler.name} ({each.handler.source})" for each in found]
    if not there:
        return f"{module.__name__!r} has no Redrive app with handlers, and no function of that name; {_HINT}"
    what = f"there is no handler {name!r}" if name else f"there is no handler for the source {source!r}"
    close = nearest(name, [each.handler.name.rpartition(":")[2] for each in found]) if name else ""
    hint = close if "did you mean" in close else ""
    return f"{what}{hint}; was it removed or renamed? There is {', '.join(sorted(there))}"


def _apps(module: ModuleType) -> list[Redrive]:
    unique = {id(value): value for value in vars(module).values() if isinstance(value, Redrive)}
    return list(unique.values())


def _value(module: ModuleType, name: str) -> Any:
    value: Any = module
    for part in name.split(".") if name else ():
        value = getattr(value, part, None)
    return None if value is module else value


def _module(name: str) -> ModuleType:
    if not name or "/" in name or name.endswith(".py"):
        raise UsageError(f"{name!r} is no module: {_HINT}")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise UsageError(f"no module {name!r} in {Path.cwd()} or on the Python path: {_HINT}") from error
        raise UsageError(f"module {name!r} cannot be imported: {error}") from error
    except Exception as error:
        raise UsageError(f"module {name!r} cannot be imported: {type(error).__name__}: {error}") from error
