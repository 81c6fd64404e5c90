"""A trace within a limit, which keeps its root cause."""

from __future__ import annotations

_CAUSES = ("\nCaused by: ", "[cause]: ", "\n ---> ")  # of several, the last is the root
_FOLLOWING = (
    "\nThe above exception was the direct cause of the following exception:",
    "\nDuring handling of the above exception, another exception occurred:",
)
"""What Python prints behind a cause: it stands above these lines, and of several the first is the root."""


def cut_stack(text: str, limit: int = 32_000) -> str:
    """The text with parts of its middle left out: its head, the root cause with its first frames, and its tail."""
    if len(text) <= limit:
        return text
    root = _root(text, limit // 4)
    head, tail = limit // 4, limit // 4
    if root is None or root < head or root > len(text) - tail:
        return _joined(text, [(0, limit // 3), (len(text) - (limit - limit // 3), len(text))], limit)
    return _joined(text, [(0, head), (root, root + limit // 2), (len(text) - tail, len(text))], limit)


def _root(text: str, before: int) -> int | None:
    """Where the root cause begins, if it has a beginning of its own."""
    last = max(text.rfind(mark) for mark in _CAUSES)
    if last >= 0:
        return last + 1
    firsts = [found for mark in _FOLLOWING if (found := text.find(mark)) >= 0]
    return max(min(firsts) - before, 0) if firsts else None


def _joined(text: str, spans: list[tuple[int, int]], limit: int) -> str:
    """The spans, each cut to make room for the note about what is left out before the next."""
    parts: list[str] = []
    end = 0
    for start, stop in spans:
        start = max(start, end)
        if stop <= start:
            continue
        note = f"\n… {start - end:,} characters left out …\n" if start > end else ""
        parts += (note, text[start : max(stop, start)])
        end = stop
    whole = "".join(parts)
    if len(whole) <= limit:
        return whole
    surplus = len(whole) - limit
    parts[-1] = parts[-1][min(surplus, len(parts[-1])) :]
    return "".join(parts)[:limit]
