"""What is masked in which carrier, and what is masked wrongly. docs/reference/redaction.md has the same as tables."""

from __future__ import annotations

from redrive.forensics.redact import Redactor
from tests.redaction.carriers import CARRIERS, FOR_LOOKS
from tests.redaction.harmless import harmless
from tests.redaction.kinds import secrets
from tests.redaction.measure import cells, wrong

WORDS, QUOTES, SIGNS = "of several words", "with quotes", "with & and <"
NOT_MASKED = {
    "JSON, a value before its name": {QUOTES},
    "properties": {QUOTES},
    "log line, key: value": {WORDS, QUOTES},
    "log line, key=value": {WORDS, QUOTES, SIGNS},
    "option": {WORDS, QUOTES},
    "option with =": {WORDS, QUOTES, SIGNS},
    ":=": {WORDS, QUOTES, SIGNS},
    "stack trace": {QUOTES},
    "stack trace with a cause": {QUOTES},
    "UTF-16 without a mark": {WORDS, QUOTES, SIGNS},
}
"""Where nothing says how far a value goes that was written without quotes. What is new here was masked before."""
MOST_WRONG = 1


def test_the_corpus_is_as_large_as_it_says() -> None:
    assert len(secrets()) >= 400
    assert len({secret.value for secret in secrets()}) == len(secrets())
    assert len(CARRIERS | FOR_LOOKS) >= 46
    assert len(harmless()) == 10_000


def test_every_secret_is_masked_in_every_carrier_but_those_named() -> None:
    missed: dict[str, set[str]] = {}
    for cell in cells():
        if not cell.masked:
            missed.setdefault(cell.carrier, set()).add(cell.kind)
    assert missed == NOT_MASKED


def test_what_is_harmless_is_shown_as_it_is() -> None:
    assert len(wrong()) <= MOST_WRONG, wrong()[:10]


def test_a_carrier_without_its_secret_would_be_seen() -> None:
    """The measure itself: without our rules, every carrier shows what it holds."""
    from tests.redaction import carriers

    bare, secret = Redactor(defaults=False), secrets()[0]
    for name, carrier in CARRIERS.items():
        shown = bare.body(carrier("reference", secret.value), limit=1 << 20)
        assert carriers.is_seen(shown, secret.hidden), name


def test_what_is_masked_stays_masked() -> None:
    redactor = Redactor()
    for secret in secrets()[::7]:
        for name, carrier in CARRIERS.items():
            shown = redactor.text(carrier(secret.key, secret.value).decode("utf-8", "backslashreplace"))
            assert redactor.text(shown) == shown, (name, secret.kind)
