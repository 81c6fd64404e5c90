"""Reads e-mail addresses strictly: every address of a text, or a ValueError that says what is wrong with it.

The grammar is that of RFC 5322 without its obsolete forms. It is our own because `email.utils` guesses, and each
Python version guesses differently: of `a@x.org, b@x.org` it takes the first, of `a@x.org (c) d` it makes `a@x.orgd`.
"""

from __future__ import annotations

import re
from email.headerregistry import Address
from email.utils import formataddr, parseaddr
from functools import lru_cache
from typing import NoReturn

from msgspec import Struct

_CONTROLS = re.compile(r"[\x00-\x1f\x7f\x80-\x9f\u2028\u2029\ud800-\udfff]")
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_SEPARATED = re.compile(rf'({_QUOTED})|(\((?:[^()\\]|\\.)*\))|([,;])|("|[()])')
_ATOM = r"[^\s()<>\[\]:;@\\,.\"]+"
_LOCAL = re.compile(rf"{_ATOM}(?:\.{_ATOM})*|{_QUOTED}")
_DOMAIN = re.compile(r"(?:[^\W_](?:[\w-]*[^\W_])?\.)*[^\W_](?:[\w-]*[^\W_])?|\[[0-9A-Za-z:.]+\]")
_ANGLED = re.compile(rf"((?:{_QUOTED}|[^<>\"])*)<([^<>]*|{_QUOTED}[^<>]*)>")
_WORD = re.compile(rf'{_QUOTED}|[^\s"]+')
_WORDS = re.compile(rf"(?:{_QUOTED}|[^()<>\[\]:;@\\,\"])*")
_COMMENTED = re.compile(r"(.*?)\s*\(((?:[^()\\]|\\.)*)\)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)")
_LONGEST, _LONGEST_LOCAL = 254, 64  # octets that a server has to take (RFC 5321)


class Mailbox(Struct, frozen=True):
    """One address and the name beside it."""

    name: str
    local: str  # as it is written, in quotes where it needs them
    domain: str

    @property
    def address(self) -> str:
        """The bare address."""
        return f"{self.local}@{self.domain}"

    @property
    def key(self) -> tuple[str, str]:
        """What two spellings of one address have in common: domains know no case."""
        return self.local, self.domain.lower()

    @property
    def encoded(self) -> str:
        """The mailbox in ASCII, as far as its address is."""
        if not self.address.isascii():
            return self.address
        return formataddr((self.name, self.address))

    @property
    def header(self) -> Address:
        """The mailbox as a header takes it."""
        return Address(self.name, _unquoted(self.local), self.domain)


@lru_cache(maxsize=4096)
def read_addresses(text: str) -> tuple[Mailbox, ...]:
    """Every address of a text, one or more, with `,` or `;` between them."""
    if _CONTROLS.search(text):
        _refuse(text, "it has control characters")
    return tuple([_mailbox(part.strip(), text) for part in _parts(text)])


def read_address(text: str) -> Mailbox:
    """The one address of a text."""
    found = read_addresses(text)
    if len(found) > 1:
        raise ValueError(f"{text!r} is {len(found)} addresses: one is wanted here")
    return found[0]


def _parts(text: str) -> list[str]:
    """The text between separators that are in no quotes and in no comment."""
    parts, start = [], 0
    for found in _SEPARATED.finditer(text):
        if found[3]:
            parts.append(text[start : found.start()])
            start = found.end()
        elif found[4]:
            _refuse(text, f"it has a {found[4]} that nothing opens or closes")
    parts.append(text[start:])
    while len(parts) > 1 and not parts[-1].strip():  # `a@x.org;` ends with a separator, as some programs write it
        parts.pop()
    return parts


def _mailbox(part: str, text: str) -> Mailbox:
    if not part:
        _refuse(text, "it has an empty place where an address should be" if text.strip() else "it is empty")
    if angled := _ANGLED.fullmatch(part):
        name = angled[1].strip()
        if not _WORDS.fullmatch(name):
            _refuse(text, f"{name!r} is no name: one with special characters stands in quotes")
        return _checked(" ".join(_unquoted(word) for word in _WORD.findall(name)), angled[2].strip(), text)
    if commented := _COMMENTED.fullmatch(part):
        return _checked(_ESCAPED.sub(r"\1", commented[2]).strip(), commented[1].strip(), text)
    return _checked("", part, text)


def _checked(name: str, address: str, text: str) -> Mailbox:
    local, at, domain = address.rpartition("@")
    if not (local and at and domain):
        _refuse(text, f"{address!r} is not name@domain")
    if not _LOCAL.fullmatch(local):
        _refuse(text, f"{local!r} cannot stand before an @, or only in quotes")
    if not _DOMAIN.fullmatch(domain):
        _refuse(text, f"{domain!r} is no domain")
    if len(local.encode()) > _LONGEST_LOCAL or len(address.encode()) > _LONGEST:
        _refuse(text, f"it has more than {_LONGEST} bytes, or more than {_LONGEST_LOCAL} before its @")
    if parseaddr(address)[1] != address:  # as SMTP libraries read it once more
        _refuse(text, f"{address!r} would not reach the server as it is written")
    return Mailbox(name, local, domain)


def _unquoted(local: str) -> str:
    return _ESCAPED.sub(r"\1", local[1:-1]) if local.startswith('"') else local


def _refuse(text: str, why: str) -> NoReturn:
    shown = text if len(text) <= 100 else f"{text[:100]}…"
    raise ValueError(f"{shown!r} is no address ({why}): write ana@example.com or Ana <ana@example.com>")
