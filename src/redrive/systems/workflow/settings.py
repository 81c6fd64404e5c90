"""The document's settings: `dlq_*` in a YAML file, `MAHAVISHNU_DLQ_*` in the environment, which wins."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

from msgspec import Struct
from msgspec.structs import fields

from redrive.config.load import parsed
from redrive.config.parse import meant_by, value_of
from redrive.config.settings import About, Key
from redrive.errors import ConfigError, RedriveError, nearest
from redrive.systems.workflow.policies import RetryPolicy

FILE = Path("settings/mahavishnu.yaml")
_PREFIX, _OURS = "MAHAVISHNU_", "dlq_"


class WorkflowSettings(Struct, frozen=True, kw_only=True):
    """What the queue of a WorkflowApp is made with."""

    dlq_enabled: Annotated[bool, About("Keep failed workflows, so that they can be retried")] = True
    dlq_max_size: Annotated[int, About("How many open tasks there may be", least=100, most=100_000)] = 10_000
    dlq_default_retry_policy: Annotated[
        str, About("When a task is retried", choices=tuple(policy.value for policy in RetryPolicy))
    ] = RetryPolicy.EXPONENTIAL.value
    dlq_default_max_retries: Annotated[int, About("How often a task is retried", least=0, most=10)] = 3
    dlq_retry_processor_enabled: Annotated[bool, About("Retry by itself what is due")] = True
    dlq_retry_interval_seconds: Annotated[int, About("How often it looks for that", least=10, most=3600)] = 60

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            _checked(name, getattr(self, name), "")

    @classmethod
    def load(cls, path: Path | None = None, environ: Mapping[str, str] | None = None) -> WorkflowSettings:
        """From that file (by default settings/mahavishnu.yaml, if there is one) and the environment."""
        given = {**_from_file(path), **_from_environ(os.environ if environ is None else environ)}
        return cls(**{name: _checked(name, raw, place) for name, (raw, place) in given.items()})


@cache
def keys() -> dict[str, Key]:
    """Each setting, by its name."""
    hints = get_type_hints(WorkflowSettings, include_extras=True)
    found = {}
    for field in fields(WorkflowSettings):
        kind, about = get_args(hints[field.name])
        found[field.name] = Key(field.name, kind, field.default, about)
    return found


def _checked(name: str, raw: object, place: str) -> Any:
    """The value, or a ConfigError that says what the setting takes."""
    if name not in keys():
        raise ConfigError(f"unknown setting {name!r}{nearest(name, keys())}")
    key = keys()[name]
    try:
        return value_of(key, raw)
    except ValueError:
        hint = nearest(str(raw), key.about.choices)
        raise ConfigError(f"{name} = {raw!r}{place}: it takes {key.takes}{hint}") from None


def bounded(name: str, setting: str, value: Any, error: type[RedriveError] = ConfigError) -> Any:
    """The value of an argument that means the same as a setting, if it is within the setting's bounds."""
    about = keys()[setting].about
    assert isinstance(about.least, int)
    assert isinstance(about.most, int)
    allowed = (int, float) if setting == "dlq_retry_interval_seconds" else (int,)
    if isinstance(value, bool) or not isinstance(value, allowed) or not about.least <= value <= about.most:
        raise error(f"{name}={value!r}: it takes {keys()[setting].takes} (as {setting} does)")
    return value


def _from_file(path: Path | None) -> dict[str, tuple[object, str]]:
    """Its `dlq_*` keys; the others are not ours."""
    if path is None and not FILE.is_file():
        return {}
    tree, place = parsed(path or FILE), f" in {path or FILE}"
    return {name: (value, place) for name, value in tree.items() if str(name).startswith(_OURS)}


def _from_environ(environ: Mapping[str, str]) -> dict[str, tuple[object, str]]:
    found: dict[str, tuple[object, str]] = {}
    for variable, text in environ.items():
        if variable.startswith(f"{_PREFIX}{_OURS.upper()}"):
            name = variable.removeprefix(_PREFIX).lower()
            value = meant_by(keys()[name], text) if name in keys() else text
            found[name] = (value, f" in the environment ({variable})")
    return found
