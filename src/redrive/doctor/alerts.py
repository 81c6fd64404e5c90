"""Checks whether the notifiers can be reached. Sends nothing to anybody."""

from __future__ import annotations

import asyncio

from redrive.alerts.masking import UrlMask
from redrive.alerts.model import Undelivered
from redrive.alerts.notifiers import open_notifier
from redrive.app import Redrive
from redrive.doctor.findings import Finding, failure, fine
from redrive.errors import RedriveError
from redrive.forensics.secrets import hidden_url

_PATIENCE = 10.0


async def notifiers(app: Redrive) -> list[Finding]:
    """Check every notifier that is configured, all at once."""
    urls = dict.fromkeys(app.settings.alerts.urls)
    with UrlMask(urls) as mask:
        return list(await asyncio.gather(*(_reached(url, mask) for url in urls)))


async def _reached(url: str, mask: UrlMask) -> Finding:
    shown = hidden_url(url)
    try:
        notifier = open_notifier(url)
    except RedriveError as error:
        return failure("alerts.urls", mask.text(str(error)), "correct `alerts.urls`")
    try:
        async with asyncio.timeout(_PATIENCE):
            await notifier.check()
    except (Undelivered, TimeoutError) as error:
        why = mask.text(str(error)) or f"no answer within {_PATIENCE:g} s"
        return failure("alerts.urls", f"{shown} does not answer: {why}", "start it, or correct `alerts.urls`")
    finally:
        await notifier.aclose()
    return fine("alerts.urls", f"{shown} can be asked; `redrive alerts test` tells it something")
