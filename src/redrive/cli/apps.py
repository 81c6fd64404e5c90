"""Find what MODULE:NAME names in the user's code, or say exactly what is wrong with the name."""

from __future__ import annotations

import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from redrive.app import Redrive
from redrive.cli.exits import Stopped
from redrive.cli.session import given, loaded
from redrive.errors import HandlerRefused, nearest


def find_app(target: str) -> Redrive:
    """The app of `shop:app`; `shop` alone means its `app`. The current directory is looked in first."""
    module_name, _, attribute = target.partition(":")
    if module_name.endswith(".py") or "/" in module_name:
        dotted = module_name.removesuffix(".py").replace("/", ".").strip(".")
        raise Stopped(f"{target!r} is a file; name the module: {dotted}:{attribute or 'app'}")
    os.environ.update(_said())
    return _app_in(_module(module_name), attribute or "app")


def find_object(target: str, default: str, hint: str) -> Any:
    """What `shop:handlers` names; `shop` alone means its `default`. The hint says what should be there."""
    module_name, _, name = target.partition(":")
    module = _module(module_name)
    if not hasattr(module, name or default):
        raise Stopped(f"{module_name!r} has no {name or default!r}: {hint}")
    return getattr(module, name or default)


def _said() -> dict[str, str]:
    """The options --config and --store as variables of the environment, where an app looks for them when it is made."""
    said, found = given(), loaded()
    words = {"REDRIVE_CONFIG": str(said.config) if said.config else "", "REDRIVE_STORE": said.store or ""}
    if found.sources.get("transports.default") == "--store":
        words["REDRIVE_TRANSPORTS_DEFAULT"] = found.settings.transports["default"]
    return {name: value for name, value in words.items() if value}


def _module(name: str) -> ModuleType:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise Stopped(f"no module {name!r} in {Path.cwd()} or on the Python path{_nearby(name)}") from error
        raise Stopped(f"module {name!r} cannot be imported: {error} ({_place(error)})") from error
    except (HandlerRefused, SyntaxError) as error:  # which say their place themselves
        raise Stopped(f"module {name!r} cannot be imported: {error}") from error
    except Exception as error:
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise Stopped(f"module {name!r} cannot be imported: {said} ({_place(error)})") from error


def _nearby(name: str) -> str:
    found = nearest(name, [file.stem for file in Path.cwd().glob("*.py")])
    return found if "did you mean" in found else ""


def _place(error: BaseException) -> str:
    """The place in the user's code where it happened: the last frame, import machinery and our own code aside."""
    ours = str(Path(__file__).parent.parent)
    every = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    frames = [frame for frame in every if not frame.filename.startswith(ours)] or every
    return f"{frames[-1].filename}:{frames[-1].lineno}"


def _app_in(module: ModuleType, attribute: str) -> Redrive:
    value = module
    for name in attribute.split("."):
        if not hasattr(value, name):
            raise Stopped(f"{module.__name__!r} has no {attribute!r}{_apps(module, attribute)}")
        value = getattr(value, name)
    if not isinstance(value, Redrive):
        raise Stopped(
            f"{module.__name__}:{attribute} is a {type(value).__name__}, not a Redrive app{_apps(module, attribute)}"
        )
    return value


def _apps(module: ModuleType, attribute: str) -> str:
    apps = [name for name, value in vars(module).items() if isinstance(value, Redrive)]
    if apps:
        return f": did you mean {module.__name__}:{apps[0]}?"
    return nearest(attribute, [name for name in vars(module) if not name.startswith("_")]) or ": it has no Redrive app"
