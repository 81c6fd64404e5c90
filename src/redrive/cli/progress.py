"""A progress bar on stderr, for people only, and only once something takes longer than a second."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_SOON, _BETWEEN = 1.0, 0.1  # seconds until it is shown, and between two looks at it: drawing costs more than a letter


class Bar:
    """A progress bar; call it with how many more are done."""

    def __init__(self, text: str, total: int | None) -> None:
        self.done = 0
        self._text = text
        self.total = total
        self._due = time.monotonic() + _SOON
        self._progress: Progress | None = None

    def __call__(self, count: int) -> None:
        self.done += count
        self._draw()

    def count(self, count: int) -> None:
        """Note how many more are done, and draw nothing."""
        self.done += count

    def at(self, done: int, text: str) -> None:
        """Set how many are done, and the text of what is done now."""
        self.done, self._text = done, text
        self._draw()

    def _draw(self) -> None:
        now = time.monotonic()
        if now < self._due or not sys.stderr.isatty():
            return
        self._due = now + _BETWEEN
        if self._progress is None:
            self._progress = _shown()
            self._progress.start()
            self._progress.add_task(self._text, total=self.total)
        self._progress.update(self._progress.task_ids[0], completed=self.done, description=self._text)

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()


def _shown() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
