"""Versions are ordered as their makers mean them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from redrive.forensics.version_order import is_at_least, is_version, order_of

_RISING = [
    "0.9",
    "1.0.dev3",
    "1.0a1",
    "1.0-alpha.2",
    "1.0b1",
    "1.0-beta.2",
    "1.0rc1",
    "v1.0.0-rc.2",
    "1.0",
    "1.0.post1",
    "1.4.2",
    "v1.4.2-3-g1a2b3c4",
    "1.4.2-12-gabcdef0-dirty",
    "1.9",
    "v1.10",
    "2026.11.18",
]


def test_versions_rise_as_their_makers_mean_them() -> None:
    for older, newer in pairwise(_RISING):
        assert is_at_least(newer, older) is True, (older, newer)
        assert is_at_least(older, newer) is False, (older, newer)


@pytest.mark.parametrize("same", ["v1.4.2", "1.4.2.0", "V1.4.2", "1.4.2+build.7", "1.4.2"])
def test_the_same_version_is_written_in_many_ways(same: str) -> None:
    assert is_at_least(same, "1.4.2") is True
    assert is_at_least("1.4.2", same) is True


@pytest.mark.parametrize("version", ["g1a2b3c4", "main", "release-blue", "1a2b3c4", "", "1.4.x"])
def test_what_has_no_order_is_the_same_or_nothing_is_said(version: str) -> None:
    assert order_of(version) is None
    assert is_at_least(version, "1.4.2") is None
    assert is_at_least("1.4.2", version) is None
    assert is_at_least(version, version) is True


def test_a_version_is_one_short_word() -> None:
    assert all(map(is_version, ["1.4.2", "g1a2b3c4", "blue"]))
    assert not any(map(is_version, ["", " ", "1.4 2", "1.4\n2", "x" * 101, "\x00"]))
