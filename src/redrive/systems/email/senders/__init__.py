"""Senders of e-mail: SMTP, SES, or your own. A URL says which."""

from __future__ import annotations

from importlib import import_module

from redrive.errors import ConfigError, nearest
from redrive.systems.email.senders.base import Mail, Sender, SendError

__all__ = ["Mail", "SendError", "Sender", "open_sender"]

SENDERS = {
    "smtp": "redrive.systems.email.senders.smtp:open_sender",
    "smtps": "redrive.systems.email.senders.smtp:open_sender",
    "ses": "redrive.systems.email.senders.ses:open_sender",
}


def open_sender(url: str) -> Sender:
    """The sender of that URL: `smtp://user:password@host:587`, `smtps://host:465` or `ses://eu-west-1`."""
    scheme, is_url, _ = url.partition("://")
    if not is_url or scheme not in SENDERS:
        raise ConfigError(f"no sender speaks {scheme!r}{nearest(scheme, SENDERS)}: write it like smtp://localhost:25")
    module, _, name = SENDERS[scheme].partition(":")
    sender: Sender = getattr(import_module(module), name)(url)
    return sender
