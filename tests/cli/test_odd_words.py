"""What nobody means to type is answered in the same words in both homes, and never with a traceback."""

from __future__ import annotations

import os

import pytest

from tests.cli.world import World

BOTH_HOMES = True
NO_TEXT = os.fsdecode(b"a\xff")
VIEWER = ("token", "create", "--role", "viewer", "--name")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("show", "a/b"), 1, "no letter 'a/b'"),
        (("show", ".."), 1, "no letter '..'"),
        (("differs", "a/b"), 1, "no group 'a/b'"),
        (("replays", "cancel", "a/b"), 1, "no replay 'a/b'"),
        (("incidents", "resolve", "a/b"), 1, "no incident 'a/b'"),
        (("token", "revoke", "a/b"), 2, "no token 'a/b'"),
        ((*VIEWER, ""), 2, "a name of 1 to 200 characters"),
        ((*VIEWER, "x" * 201), 2, "a name of 1 to 200 characters"),
        ((*VIEWER, "x", "--expires", "0s"), 2, "a token opens for some time, and for ten years at most"),
        ((*VIEWER, "x", "--expires", "4000d"), 2, "a token opens for some time, and for ten years at most"),
        ((*VIEWER, "x", "--expires", "9999999d"), 2, "a token opens for some time, and for ten years at most"),
        ((*VIEWER, "x", "--not-before", "9999999d"), 2, "a token begins within a year"),
        (("token", "rotate", "x", "--overlap", "9999999d"), 2, "for a year at most"),
        (("pause", "orders", "--for", "9999999d"), 2, "a source is paused for a year at most"),
        ((*VIEWER, NO_TEXT), 2, "bytes that are no UTF-8"),
        (("note", "groupaaaaaaa", NO_TEXT), 2, "bytes that are no UTF-8"),
        (("show", NO_TEXT), 2, "bytes that are no UTF-8"),
    ],
)
def test_what_nobody_means(world: World, words: tuple[str, ...], code: int, said: str) -> None:
    assert said in " ".join(world.shell(*words, code=code).stderr.split())


def test_a_text_longer_than_a_question_is_no_trouble_of_the_server(world: World, home: str) -> None:
    done = world.shell("letters", "--text", "a" * 100_000, code=1 if home == "store" else 2)
    assert ("no letter matches" if home == "store" else "a shorter text") in done.stderr
