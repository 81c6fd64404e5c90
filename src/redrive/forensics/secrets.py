"""What a secret looks like: the keys it stands under, and the shapes it has by itself.

Every pattern runs in linear time: what repeats is possessive, and starts only where a run of its characters starts.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable
from typing import TypeAlias

MASK = "[redacted]"

Replacement: TypeAlias = str | Callable[[re.Match[str]], str]
Pattern: TypeAlias = tuple[re.Pattern[str], Replacement]

KEYS: tuple[str, ...] = (
    *("authorization", "proxy_authorization", "cookie", "cookies", "set_cookie", "session", "session_id"),
    *("password", "passwords", "passwd", "passphrase", "pwd", "pin", "credentials"),
    *("secret", "secrets", "client_secret", "token", "api_key", "access_key", "account_key", "private_key"),
    *("secret_key", "session_key", "signing_key", "encryption_key"),
    *("card_number", "cvv", "cvc", "ssn"),
)

NOTHING = frozenset({"", "none", "null", "nil", "true", "false", "undefined", MASK})
"""Under a secret key and yet no secret; that a password is missing may be the whole story."""


def hidden_url(url: str) -> str:
    """The URL of a notifier, as far as it may be shown: its scheme, and its host where that is no key itself."""
    scheme, is_url, rest = url.partition("://")
    if not is_url:
        return MASK
    host = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2] if _NAMES_A_HOST.fullmatch(scheme) else ""
    more = "" if rest == host else f"/{MASK}" if host else MASK
    return f"{scheme}://{host}{more}"


_NAMES_A_HOST = re.compile(r"(?:alertmanager|webhook)\+https?")


def is_card(number: str) -> bool:
    """Luhn's sum: what tells a card number from most other long numbers."""
    digits = [int(digit) for digit in number if digit.isdigit()]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
    return (sum(doubled) + sum(digits[-1::-2])) % 10 == 0


def _mask_card(match: re.Match[str]) -> str:
    return MASK if is_card(match[0]) else match[0]


def _mask_basic(match: re.Match[str]) -> str:
    """`Basic` is also a plain word, so what follows must be a name and a password."""
    try:
        said = b64decode(match[2] + "==").decode()
    except ValueError:
        return match[0]
    return match[1] + MASK if ":" in said and said.isprintable() else match[0]


_PEM = r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----(?:(?!-----END ).)*+(?:-----END [A-Z ]{0,20}PRIVATE KEY-----)?"
_PREFIXED = (
    r"gh[pousr]_[A-Za-z0-9]{20,}+|github_pat_\w{20,}+|glpat-[\w-]{16,}+",  # GitHub, GitLab
    r"xox[abeoprs]-[\w-]{10,}+|xapp-[\w-]{10,}+",  # Slack
    r"[srp]k_(?:live|test)_\w{10,}+|whsec_\w{16,}+",  # Stripe
    r"AIza[\w-]{30,}+|SG\.[\w-]{16,}+\.[\w-]++|sk-[\w-]{20,}+|npm_[A-Za-z0-9]{30,}+",  # Google, SendGrid, …
    r"rdr_\w{4,}+",  # our own
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b",  # AWS
)
_CARD = r"(?<![\w.])[2-6](?:\d{12,18}|\d{3}([ -])\d{4}\1\d{4}\1\d{1,4}|\d{3}([ -])\d{6}\2\d{5})(?!\w)"

PATTERNS: tuple[Pattern, ...] = (
    (re.compile(_PEM, re.DOTALL), MASK),
    (re.compile(r"(://[^\s/:@]*+:)[^\s/?#\"']+(?=@)"), rf"\1{MASK}"),  # a password in a URL
    (re.compile(r"(?<![\w-])eyJ[\w-]{8,}+\.[\w-]++\.[\w-]*+"), MASK),  # a JWT
    # a word after it is prose ("bearer authentication"), unless it is long or has more than letters
    (re.compile(r"(?i)(\bBearer +)(?=\S*[\d_]|\S{16}|\S+[.~+/-]\w)[\w.~+/=-]{6,}+"), rf"\1{MASK}"),
    (re.compile(r"(?i)(\bBasic +)([A-Za-z0-9+/]{4,}+)={0,2}"), _mask_basic),
    (re.compile(rf"\b(?:{'|'.join(_PREFIXED)})"), MASK),
    (re.compile(_CARD), _mask_card),
)
