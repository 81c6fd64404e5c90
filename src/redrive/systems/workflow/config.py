"""The document's settings: `dlq_*` in a YAML file, `MAHAVISHNU_DLQ_*` in the environment, which wins."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from redrive.errors import ConfigError, MissingExtra, nearest
from redrive.systems.workflow.policies import RetryPolicy

try:
    from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
except ImportError as error:
    raise MissingExtra("the settings of workflows", "pydantic") from error

FILE = Path("settings/mahavishnu.yaml")
_PREFIX, _OURS = "MAHAVISHNU_", "dlq_"


class WorkflowSettings(BaseModel):
    """What the queue of a WorkflowApp is made with."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dlq_enabled: bool = Field(default=True, description="Keep failed workflows, so that they can be retried")
    dlq_max_size: int = Field(default=10_000, ge=100, le=100_000, description="How many open tasks there may be")
    dlq_default_retry_policy: str = Field(
        default=RetryPolicy.EXPONENTIAL.value, description="never, linear, exponential or immediate"
    )
    dlq_default_max_retries: int = Field(default=3, ge=0, le=10, description="How often a task is retried")
    dlq_retry_processor_enabled: bool = Field(default=True, description="Retry by itself what is due")
    dlq_retry_interval_seconds: int = Field(default=60, ge=10, le=3600, description="How often it looks for that")

    @field_validator("dlq_default_retry_policy")
    @classmethod
    def known_policy(cls, name: str) -> str:
        names = [policy.value for policy in RetryPolicy]
        if name not in names:
            raise ValueError(f"dlq_default_retry_policy must be one of {names}, got {name!r}{nearest(name, names)}")
        return name

    @classmethod
    def load(cls, path: Path | None = None, environ: Mapping[str, str] | None = None) -> WorkflowSettings:
        """From that file (by default settings/mahavishnu.yaml, if there is one) and the environment."""
        given = {**_from_file(path), **_from_environ(os.environ if environ is None else environ)}
        for name in given:
            if name not in cls.model_fields:
                raise ConfigError(f"unknown setting {name!r}{nearest(name, cls.model_fields)}")
        try:
            return cls(**given)
        except ValidationError as error:
            found = "; ".join(f"{one['loc'][0]}: {one['msg']}" for one in error.errors())
            raise ConfigError(f"the settings of workflows are wrong: {found}") from None


def _from_file(path: Path | None) -> dict[str, Any]:
    """Its `dlq_*` keys; the others are not ours."""
    if path is None and not FILE.is_file():
        return {}
    try:
        import yaml
    except ImportError:
        raise MissingExtra(f"reading {path or FILE}", "yaml") from None
    try:
        tree = yaml.safe_load((path or FILE).read_text())
    except OSError as error:
        raise ConfigError(f"{path or FILE} cannot be read: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path or FILE} is no YAML: {error}") from None
    if not isinstance(tree, dict | None):
        raise ConfigError(f"{path or FILE} has to hold keys and values, such as `dlq_max_size: 10000`")
    return {str(name): value for name, value in (tree or {}).items() if str(name).startswith(_OURS)}


def _from_environ(environ: Mapping[str, str]) -> dict[str, str]:
    found = {name: value for name, value in environ.items() if name.startswith(f"{_PREFIX}{_OURS.upper()}")}
    return {name.removeprefix(_PREFIX).lower(): value for name, value in found.items()}
