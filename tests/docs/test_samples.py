"""Every sample of the documentation runs, and prints what the page shows."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.docs.samples import ROOT, blocks, pages, steps
from tests.docs.session import Reader
from tests.docs.transcript import agrees

WITH_SAMPLES = [page for page in pages() if steps(page)]
_AT_ONCE = 8  # readers mostly wait for processes to start
Readers: TypeAlias = dict[Path, Future[None]]


@pytest.fixture(scope="module")
def readers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Path, Future[None]]]:
    """Every page that is to be tested has its own reader, all at work from the start."""
    items: list[Any] = request.session.items
    wanted = [item.callspec.params["page"] for item in items if _is_reading(item)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield {page: pool.submit(_read, page, tmp_path_factory.mktemp(page.stem)) for page in wanted}


def _is_reading(item: Any) -> bool:
    return getattr(item, "originalname", None) == test_a_reader_who_does_what_the_page_says_sees_what_it_shows.__name__


def _read(page: Path, directory: Path) -> None:
    with Reader(directory) as reader:
        for step in steps(page):
            reader.do(step)


@pytest.mark.parametrize("page", WITH_SAMPLES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_reader_who_does_what_the_page_says_sees_what_it_shows(page: Path, readers: Readers) -> None:
    readers[page].result()


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_says_what_it_is(page: Path) -> None:
    assert [block.place for block in blocks(page) if not block.language] == []


def test_a_page_that_shows_another_output_is_found() -> None:
    printed = "LETTER  STATE\n───\nabcdefgh23456723  pending  3s ago  orders\n2 letters\n"
    assert agrees("LETTER STATE\n─\nzzzzzzzzzzzzzzzz pending 12s ago orders\n2 letters", printed)
    assert agrees("LETTER STATE\n…\n2 letters", printed)
    assert agrees("LETTER …", printed, so_far=True)
    assert not agrees("LETTER STATE\n2 letters", printed)
    assert not agrees("LETTER STATE\n…\n3 letters", printed)
    assert not agrees("LETTER …", printed)
