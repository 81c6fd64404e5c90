"""A shop, and a way to run it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.processes.world import SHOP, Run

Start = Callable[..., Run]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    tmp_path.joinpath("shop.py").write_text(SHOP)
    return tmp_path


@pytest.fixture
def start(shop: Path) -> Iterator[Start]:
    """`redrive` with these words, in the directory of the shop."""
    runs: list[Run] = []

    def started(*words: str, **environ: str) -> Run:
        runs.append(Run(shop, *words, **environ))
        return runs[-1]

    yield started
    for run in runs:
        run.close()
