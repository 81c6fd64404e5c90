"""Errors that tell the reader what to do next."""

from __future__ import annotations

import pytest

from redrive import errors
from redrive.errors import (
    HandlerError,
    MessageTooLarge,
    MissingExtra,
    Permanent,
    RedriveError,
    StoreUnavailable,
    Transient,
    Unavailable,
    UnknownIncident,
    UnknownLetter,
    UnknownReplay,
    UnknownSource,
    UsageError,
    nearest,
)
from redrive.extras import install
from redrive.model import Category


def test_catching_the_root_catches_everything_of_ours() -> None:
    ours = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert len(ours) > 12
    assert all(issubclass(kind, RedriveError) for kind in ours)


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = set((errors.__doc__ or "").split())
    ours = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert ours == {word for word in drawn if word in ours or word.endswith("Error")}


def test_an_unknown_source_names_the_nearest() -> None:
    assert str(UnknownSource("oders", ["orders", "emails"])) == "unknown source 'oders': did you mean 'orders'?"


def test_where_nothing_is_near_it_lists_what_there_is() -> None:
    assert nearest("zzz", ["orders", "emails"]) == ": there is emails, orders"
    assert nearest("zzz", []) == ""
    assert nearest("zzz", [f"name-{n}" for n in range(13)]) == ""


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (UnknownLetter("x"), "redrive letters"),
        (UnknownReplay("x"), "redrive replays"),
        (UnknownIncident("x"), "redrive incidents"),
        (MessageTooLarge(2_000_000, 1_000_000), "REDRIVE_BODY_LIMIT"),
        (MissingExtra("tracing", "tracing"), install("tracing")),
        (UnknownSource("x", [], "Say app.declare('x')"), "app.declare"),
    ],
)
def test_an_error_says_what_to_do(error: RedriveError, hint: str) -> None:
    assert hint in str(error)


def test_unavailable_says_who_and_why() -> None:
    error = StoreUnavailable("redrive.db", "disk is full")
    assert isinstance(error, Unavailable)
    assert not isinstance(error, UsageError)
    assert (error.name, error.why, str(error)) == (
        "redrive.db",
        "disk is full",
        "redrive.db is unavailable: disk is full",
    )
    assert str(StoreUnavailable("redrive.db")) == "redrive.db is unavailable"


def test_a_handler_says_on_purpose_what_kind_of_failure_it_is() -> None:
    assert (Permanent.category, Permanent.retryable) == (Category.PERMANENT, False)
    assert (Transient.category, Transient.retryable) == (Category.TRANSIENT, True)
    error: HandlerError = Permanent("no such card", code="card_declined", category=Category.VALIDATION)
    assert (error.code, error.category, error.retryable) == ("card_declined", Category.VALIDATION, False)
    assert Permanent.category is Category.PERMANENT
