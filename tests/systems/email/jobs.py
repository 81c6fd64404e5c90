"""Jobs for tests."""

from __future__ import annotations

from typing import Any

import msgspec


def job(outbox: str = "o-1", company: str = "acme", **changes: Any) -> dict[str, Any]:
    """A job as a producer would write it."""
    fields = {
        "outboxId": outbox,
        "companyId": company,
        "to": "ana@example.com",
        "from": "Shop <shop@example.org>",
        "subject": "Your order",
        "text": "It is on its way.",
    }
    return {**fields, **changes}


def written(**changes: Any) -> bytes:
    return msgspec.json.encode(job(**changes))
