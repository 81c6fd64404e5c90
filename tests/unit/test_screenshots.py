"""The pictures of the console: every page has one of each look, and all of them together are small."""

from __future__ import annotations

from tools.screenshots import LOOKS, PAGES, PLACE, WITHOUT, routes

MOST = 6_000_000
"""Bytes of all pictures."""


def test_every_page_of_the_console_is_in_the_pictures() -> None:
    assert "/groups/:id" in routes()
    assert {*PAGES, *WITHOUT} == set(routes())
    there = {path.name for path in PLACE.glob("*.png")}
    assert there == {f"{page}.{look.name}.png" for page in PAGES.values() for look in LOOKS}


def test_the_pictures_are_small() -> None:
    assert sum(path.stat().st_size for path in PLACE.glob("*.png")) < MOST
