"""The settings that a process runs with, as they are shown: secrets masked, and where each value comes from."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from redrive.app import Redrive
from redrive.config.load import ENVIRONMENT
from redrive.config.settings import Described, describe
from redrive.forensics.redact import Redactor

_PLACES = {"default": "default", ENVIRONMENT: "environment", "--store": "argument", "argument": "argument"}


class ShownSetting(Struct, frozen=True):
    """One setting: its value with secrets masked, and where that comes from."""

    name: str
    value: str
    origin: str = field(name="from")  # default, file, environment, argument
    place: str = ""  # the file, or the name in the environment
    default: str = ""
    about: str = ""


def shown_settings(app: Redrive, redactor: Redactor) -> list[ShownSetting]:
    """Every setting that the app runs with. What Redrive masks by itself is masked in any case."""
    always = Redactor()
    return [_shown(each, always.text(redactor.text(each.value))) for each in describe(app.settings, sources_of(app))]


def sources_of(app: Redrive) -> Mapping[str, str]:
    """Where each setting that is no default came from: as it was read, or as the program gave it."""
    if app.settings_from is not None:
        return app.settings_from
    return {each.path: "argument" for each in describe(app.settings, {}) if each.value != each.default}


def _shown(setting: Described, value: str) -> ShownSetting:
    origin = _PLACES.get(setting.source, "file")
    place = setting.environ if origin == "environment" else setting.source if origin == "file" else ""
    return ShownSetting(setting.path, value, origin, place, setting.default, setting.about)
