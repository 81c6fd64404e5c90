"""Notices as people read them: a title and some lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from redrive.alerts.model import Kind, Notice

_MOST_LINES = 20


def title_of(notices: Sequence[Notice]) -> str:
    """`[redrive] error: 3 letters of orders are exhausted`, or how many of each kind."""
    if len(notices) == 1:
        return f"[redrive] {_headline(notices[0])}"
    kinds = Counter(str(notice.kind) for notice in notices)
    return f"[redrive] {len(notices)} alerts: " + ", ".join(f"{count} {kind}" for kind, count in kinds.items())


def body_of(notices: Sequence[Notice]) -> str:
    """The text of notices: all of a single one, a line for each of many."""
    if len(notices) == 1:
        return "\n".join(_whole(notices[0]))
    lines = [f"- {_headline(notice)}" for notice in notices[:_MOST_LINES]]
    left_out = len(notices) - _MOST_LINES
    return "\n".join(lines + ([f"… and {left_out} more: `redrive incidents`"] if left_out > 0 else []))


def _headline(notice: Notice) -> str:
    word = "resolved" if notice.kind is Kind.RESOLVED else f"{notice.alert.severity}"
    return f"{word}: {notice.alert.summary}"


def _whole(notice: Notice) -> list[str]:
    alert = notice.alert
    lines = [alert.summary, "", f"{alert.name}, since {alert.starts_at:%Y-%m-%d %H:%M:%S} UTC, {_counted(notice)}"]
    lines += [f"{name}: {value}" for name, value in alert.details.items()]
    lines += [f"{text}: {address}" for text, address in alert.links.items()]
    if notice.kind is Kind.RESOLVED and notice.by:
        lines.append(f"resolved by {notice.by}")
    return lines


def _counted(notice: Notice) -> str:
    times = "once" if notice.count == 1 else f"{notice.count:,} times"
    return times if notice.kind is not Kind.REPEATED else f"{times}, {notice.since:,} since it was last told"
