"""What a search for a text looks into: a letter as it is shown. What is masked there cannot be found.

Were it the letter itself, whoever may search could guess a secret letter by letter: "does any body hold `pa`?".
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeVar

from redrive import __version__
from redrive.forensics.redact import Redactor
from redrive.forensics.secrets import MASK
from redrive.model import Letter

if TYPE_CHECKING:
    from redrive.config.settings import Redaction

V = TypeVar("V")
_RULES = 2
"""One more whenever Redrive itself masks other things: what was indexed before may show what is masked now."""
_MOST = 16 << 10  # bytes of a body; what is shown of it is longer
_BORDER = "\uffff"  # between fields, so that no text is found across two of them


class Searchable:
    """Makes the text of a letter that a search looks into: ids, key, error and the start of the body, redacted."""

    def __init__(self, redactor: Redactor | None = None, rules: str = "") -> None:
        self._redactor = redactor or Redactor()
        self.rules = rules  # changes whenever another text may be made of the same letter

    @classmethod
    def of(cls, rules: Redaction) -> Searchable:
        """As the setting `redact` says."""
        said = repr((__version__, _RULES, rules.defaults, rules.keys, rules.patterns))
        return cls(Redactor.of(rules), blake2b(said.encode("utf-8", "replace"), digest_size=8).hexdigest())

    def text(self, letter: Letter) -> str:
        """The text of a letter, its ASCII letters in lower case."""
        message, last, redactor = letter.message, letter.last, self._redactor
        fields = [
            letter.id,
            _masked(redactor.text, message.id),
            "" if message.key is None else _masked(redactor.start, message.key),
            _masked(redactor.text, message.correlation_id or ""),
            last.type,
            _masked(redactor.text, last.message),
            _masked(lambda body: redactor.body(body, _MOST), message.body),
        ]
        return _BORDER.join([folded(field) for field in fields])

    def has(self, text: str, letter: Letter) -> bool:
        """Whether the text is in what is shown of the letter; ASCII case aside."""
        return folded(text) in self.text(letter)


def _masked(mask: Callable[[V], str], value: V) -> str:
    """The value as it is shown. One that cannot be searched for secrets is a secret as a whole, as in views.py."""
    try:
        return mask(value)
    except Exception:
        return MASK


def folded(text: str) -> str:
    """The text as it is compared: ASCII letters in lower case, no border, and nothing that a database cannot hold."""
    return text.encode("utf-8", "replace").lower().decode().replace("\0", "\ufffd").replace(_BORDER, "\ufffd")


DEFAULT = Searchable()
"""With what Redrive masks by itself, for a store that was not told more."""
