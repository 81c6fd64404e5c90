"""What the core asks the systems for, once it has settings: routes, checks, metrics, formats."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

from redrive.answers import ask_each
from redrive.doctor.findings import Finding, failure
from redrive.errors import RedriveError
from redrive.systems.base import Format, System, resolved
from redrive.systems.discover import refused, sections, systems

if TYPE_CHECKING:
    from redrive.app import Redrive
    from redrive.config.settings import Settings
    from redrive.telemetry.metrics import Metrics


_PATIENCE = 10.0
_AGAIN = "does what it looks at answer? look again"


def in_use(settings: Settings) -> Iterator[System]:
    """The systems whose switch is set, and those that have none."""
    for name, system in systems().items():
        section = sections().get(name)
        if not system.switch or (section and getattr(settings.of(section), system.switch) is not None):
            yield system


def configured(settings: Settings) -> Iterator[System]:
    """The systems that the settings speak of: their switch is set; or they have none, and their section
    says something, or a URL has a scheme of theirs."""
    schemes = {url.partition("://")[0] for url in (settings.store, *settings.transports.values())}
    for system in in_use(settings):
        section = sections().get(system.name)
        said = section is not None and any(type(each) is section for each in settings.sections)
        if system.switch or said or schemes & {*system.transports, *system.stores}:
            yield system


def routers_of(settings: Settings) -> list[Any]:
    """The routes of the systems that are in use."""
    return [resolved(system.routes, system.extra) for system in in_use(settings) if system.routes]


def prepared(settings: Settings) -> Settings:
    """The settings as the systems in use want them for a server that does their replays."""
    for system in in_use(settings):
        if system.prepare:
            settings = resolved(system.prepare, system.extra)(settings)
    return settings


def add_metrics(app: Redrive, metrics: Metrics) -> Metrics:
    """Those metrics, with what the systems in use count."""
    for system in in_use(app.settings):
        if system.metrics:
            resolved(system.metrics, system.extra)(app, metrics)
    return metrics


async def findings(app: Redrive) -> list[Finding]:
    """What the checks of the systems in use find. A check that fails is a finding too."""
    found = [failure("systems", line, "pip list names it") for line in refused()]
    checked = {system.name: _checking(system, app) for system in in_use(app.settings) if system.checks}
    answers = await ask_each(checked, patience=_PATIENCE)
    found += [finding for some in answers.found.values() for finding in some]
    return found + [failure(each.backend, f"its checks: {each.why}", _AGAIN) for each in answers.unanswered]


def _checking(system: System, app: Redrive) -> Callable[[], Awaitable[list[Finding]]]:
    return lambda: _checked(system, app)


async def _checked(system: System, app: Redrive) -> list[Finding]:
    try:
        return list(await resolved(system.checks, system.extra)(app))
    except RedriveError as error:
        return [failure(system.name, str(error), f"correct the section `{system.name}`")]
    except Exception as error:  # a check of a stranger's that is broken; the others are made all the same
        said = f"{type(error).__name__}: {error}"
        return [failure(system.name, f"its checks could not be made: {said}", "tell who wrote that system")]


def formats() -> dict[str, Format]:
    """The forms of dead messages that systems can read, by their names."""
    return {form.name: form for system in systems().values() for form in system.formats}
