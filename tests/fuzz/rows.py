"""What came of the hostile messages of one stage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct


class Row(Struct, frozen=True):
    """One line of the table. `notes` name the first cases that went wrong."""

    stage: str
    cases: int
    stops: int = 0
    losses: int = 0
    notes: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        return not self.stops and not self.losses


def table(rows: Iterable[Row]) -> str:
    lines = [f"{'stage':<34} {'cases':>8} {'stops':>6} {'losses':>7}"]
    for row in rows:
        lines.append(f"{row.stage:<34} {row.cases:>8,} {row.stops:>6} {row.losses:>7}")
        lines += [f"    {note}" for note in row.notes]
    return "\n".join(lines)


def batches(items: Sequence[object], size: int = 200) -> Iterable[Sequence[object]]:
    return (items[start : start + size] for start in range(0, len(items), size))
