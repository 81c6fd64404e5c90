"""Secrets that are known by their looks, wherever they stand.

A text is first searched for the few characters that each kind begins with, which is fast; only where they stand is
looked closely, by a pattern that starts right there and whose repeats are possessive or bounded. So the work grows
with the length of the text, whatever is in it.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from typing import NamedTuple

from redrive.forensics.in_urls import in_urls
from redrive.forensics.prefixes import prefixed
from redrive.forensics.secrets import MASK, is_card, is_iban, is_random, is_ssn

Span = tuple[int, int, str]
"""From where, to where, and what is shown instead."""


class Shape(NamedTuple):
    """A kind of secret: how it begins, and how it goes on. The first group is masked, or all of it."""

    name: str
    begins: tuple[str, ...]
    pattern: re.Pattern[str]
    check: Callable[[re.Match[str]], bool] | None = None
    inside: bool = False  # it may follow a letter or digit
    any_case: bool = False
    rare: str = ""  # a character of it that most texts do not have, which is found much faster


def _is_basic(match: re.Match[str]) -> bool:
    """`Basic` is also a plain word, so what follows must be a name and a password."""
    try:
        said = b64decode(match[1].rstrip("=") + "==").decode()
    except ValueError:
        return False
    return ":" in said and said.isprintable()


def _is_option(match: re.Match[str]) -> bool:
    return re.search(r"-pass(?:in|out)? [\"']?\Z", match.string[max(match.start() - 12, 0) : match.start()]) is not None


def _is_said(match: re.Match[str]) -> bool:
    """Whether a program says it to a server: at the beginning of a line or behind a prompt."""
    said, before = match[1], match.string[max(match.start() - 2, 0) : match.start()]
    return (
        (not before or before[-1] in "\n\"'" or before == "> ") and any(map(str.isdigit, said)) and not said.isdigit()
    )


def _is_sent(match: re.Match[str]) -> bool:
    before = match.string[max(match.start() - 2, 0) : match.start()]
    return before == "> " or before[-1:] in tuple("\"'")


def _has_hex_before(match: re.Match[str]) -> bool:
    return _HEX.fullmatch(match.string, max(match.start() - 32, 0), match.start()) is not None


def _has_key_before(match: re.Match[str]) -> bool:
    return _MAXMIND.fullmatch(match.string, max(match.start() - 36, 0), match.start()) is not None


_HEX = re.compile(r"[0-9a-f]{32}")
_MAXMIND = re.compile(r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}")


_AN_ARGUMENT = r"(?:[\"']?,?\s{1,4}[\"']?[^\s\"'|&;]{1,64}+){0,8}?"
_NEXT = r"[\"']?,?\s{1,4}[\"']?"
COMMANDS: tuple[Shape, ...] = (
    Shape(
        "option of mysql",
        ("mysql", "mariadb"),
        re.compile(rf"(?:mysql|mariadb)[\w-]{{0,16}}+{_AN_ARGUMENT}{_NEXT}-p([^\s\"']{{2,}})"),
        inside=True,
    ),
    Shape("option of sshpass", ("sshpass",), re.compile(rf"sshpass{_NEXT}-p{_NEXT}([^\s\"']{{2,}})")),
    Shape(
        "option of docker login",
        (" login ",),
        re.compile(rf"(?<=docker|podman|skopeo|uildah|gistry)[ ]login{_AN_ARGUMENT}{_NEXT}-p{_NEXT}([^\s\"']{{2,}})"),
        inside=True,
    ),
    Shape(
        "option of redis-cli", ("redis-cli ",), re.compile(rf"redis-cli{_AN_ARGUMENT}{_NEXT}-a{_NEXT}([^\s\"']{{2,}})")
    ),
    Shape(
        "option of ldapsearch",
        ("ldap",),
        re.compile(rf"ldap\w+{_AN_ARGUMENT}{_NEXT}-w{_NEXT}([^\s\"']{{2,}})"),
    ),
    Shape(
        "argument of rabbitmqctl",
        ("rabbitmqctl ",),
        re.compile(r"rabbitmqctl (?:change_password|add_user) {1,4}[\w.@-]{1,64} {1,4}[\"']?([^\s\"']{2,})"),
    ),
    Shape("argument of htpasswd", ("htpasswd -",), re.compile(r"htpasswd -\w*b\w* \S{1,256} \S{1,64} ([^\s\"']{2,})")),
    Shape("argument of openssl", ("pass:",), re.compile(r"pass:([^\s\"'`]{2,})"), _is_option),
    Shape("option of Windows", ("/pass:", "/password:"), re.compile(r"/pass(?:word)?:([^\s\"'`]{2,})"), inside=True),
    Shape(
        "arguments of a login",
        ("login(", "authenticate(", "signin(", "sign_in(", "logon(", "PDO->__construct("),
        re.compile(r"[\w>-]{4,20}\((?:b?[\"'][^\"'\n]{0,128}+[\"'],\s{0,8}){1,2}b?[\"']([^\"'\n]{1,256}+)[\"']"),
        inside=True,
        rare="(",
    ),
    Shape(
        "option of curl, glued",
        ("curl ",),
        re.compile(rf"curl{_AN_ARGUMENT}{_NEXT}-u[\w.@+-]{{1,64}}+:([^\s\"'`]{{3,}}+)"),
    ),
    Shape("SecureString", ("ConvertTo-SecureString ",), re.compile(r"ConvertTo-SecureString [\"']([^\"'\n]{1,256}+)")),
    Shape("AUTH of SMTP", ("AUTH ",), re.compile(r"AUTH (?:PLAIN|LOGIN|XOAUTH2) ([A-Za-z0-9+/]{4,}+={0,2})")),
    Shape("AUTH of Redis", ("AUTH ",), re.compile(r"AUTH (?:[\w.@-]{1,64} )?([^\s\"'\\]{4,})"), _is_said),
    Shape(
        "AUTH of Redis, refused", ("'AUTH'",), re.compile(r"'AUTH'[^'\n]{0,64}(?:'[^'\n]{0,64}' )?'([^'\n]{1,256}+)'")
    ),
    Shape("PASS of FTP", ("PASS ",), re.compile(r"PASS ([^\s\"'\\]{3,})"), _is_sent),
    Shape(
        "LOGIN of IMAP",
        ("LOGIN ",),
        re.compile(r"LOGIN [\"']?[\w.+-]{1,64}@[\w.-]{1,64}[\"']? [\"']?([^\s\"'\]\\]{3,})"),
    ),
    Shape(
        "jdbc of Oracle",
        ("jdbc:oracle:",),
        re.compile(r"jdbc:oracle:(?:thin|oci):[\w$#]{1,64}/([^@\s\"']{1,128})@"),
        inside=True,
    ),
    Shape("signature", ("Signature=",), re.compile(r"Signature=([A-Fa-f0-9]{64}|[\w%+/~-]{20,}+=*)"), inside=True),
    Shape(
        "hash of a password",
        ("$2a$", "$2b$", "$2y$", "$1$", "$5$", "$6$", "$y$", "$argon2", "pbkdf2_sha", "$pbkdf2-", "$scrypt$"),
        re.compile(
            r"\$2[aby]\$\d\d\$[./A-Za-z0-9]{53}|\$[156y]\$(?:rounds=\d{1,9}\$|j9T\$)?[./A-Za-z0-9]{1,40}+\$[./A-Za-z0-9]{22,86}+"
            r"|\$(?:argon2|pbkdf2-|scrypt)[\w-]{0,16}+\$[\w=,.$+/-]{20,400}+|pbkdf2_sha\d{1,3}\$\d{1,9}\$\w{1,64}\$[\w+/=-]{20,100}+"
        ),
        inside=True,
        rare="$",
    ),
)


_PEM = (
    r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----(?:[^\"'<>{}]|\\*[\"'],\s{0,80}\\*[\"'](?=[\w+/=-]))*?"
    r"(?:-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----|(?=\\*[\"'](?!,\s{0,80}\\*[\"'][\w+/=-])|\\*[<>{}]|\Z))"
)
SHAPES: tuple[Shape, ...] = (
    Shape("private key", ("-----BEGIN ",), re.compile(_PEM), inside=True),
    Shape("JWT", ("eyJ",), re.compile(r"eyJ[\w-]{8,}+\.[\w-]++(?:\.[\w-]*+)?(?:\.[\w-]++){0,2}")),
    Shape(
        "Bearer",
        ("bearer ",),
        # a word after it is prose ("bearer authentication"), unless it is long or has more than letters
        re.compile(r"(?i:bearer) {1,8}((?!realm=)(?=[\w.~+/=-]{0,64}[\d_]|\S{16}|[\w]{1,64}[.~+/-]\w)[\w.~+/=-]{6,}+)"),
        any_case=True,
    ),
    Shape(
        "Basic",
        ("basic ",),
        re.compile(r"(?i:basic) {1,8}([A-Za-z0-9+/]{4,}+={0,2})"),
        _is_basic,
        any_case=True,
    ),
    Shape(
        "Slack webhook",
        ("hooks.slack.com/",),
        re.compile(r"hooks\.slack\.com/((?:services|workflows|triggers)/[\w/+-]{10,}+)"),
        inside=True,
    ),
    Shape(
        "Discord webhook",
        ("/webhooks/",),
        re.compile(r"/webhooks/(\d{10,25}/[\w-]{20,}+)"),
        inside=True,
    ),
    Shape(
        "Teams webhook",
        (".webhook.office.com/",),
        re.compile(r"\.webhook\.office\.com/(webhookb2/[\w@/-]{20,}+)"),
        inside=True,
    ),
    *COMMANDS,
    Shape(
        "option of curl",
        ("-u ", "--user", "http -a "),
        re.compile(
            r"(?:-u {1,4}|--user(?: {1,4}|=)|http -a {1,4})[\"']?[\w.@%+-]{1,64}+:(?!\d{1,10}\b)([^\s\"'`]{3,}+)"
        ),
        inside=True,
    ),
    Shape(
        "SQL",
        ("identified by ",),
        re.compile(r"(?i:identified by) {1,4}[\"']([^\"'\n]{1,256}+)[\"']"),
        any_case=True,
    ),
    Shape("OpenShift", ("sha256~",), re.compile(r"sha256~[\w-]{43}(?![\w-])"), rare="~"),
    Shape("Mailchimp", ("-us",), re.compile(r"-us\d{1,2}(?![\w-])"), _has_hex_before, inside=True),
    Shape("MaxMind", ("_mmk",), re.compile(r"_mmk(?!\w)"), _has_key_before, inside=True),
    Shape("Telegram", (":AA",), re.compile(r":AA[\w-]{32,34}+(?![\w-])"), inside=True),
    Shape("Azure AD secret", ("Q~",), re.compile(r"Q~[\w.~-]{31,34}+(?![\w.~-])"), inside=True, rare="~"),
    Shape("Terraform Cloud", (".atlasv1.",), re.compile(r"\.atlasv1\.[\w=-]{50,}+"), inside=True),
)
_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


_BEFORE = {"Azure AD secret": 4, "Terraform Cloud": 14, "Mailchimp": 32, "MaxMind": 36}
"""How much of a secret stands before what it is known by."""


def shaped(text: str, lower: str) -> Iterator[Span]:
    """The spans of `text` that look like a secret; `lower` is the same in small letters."""
    yield from ((*span, MASK) for span in prefixed(text, text.encode("ascii", "replace")))
    yield from ((*span, MASK) for span in in_urls(text))
    for shape in SHAPES:
        if shape.rare and shape.rare not in text:
            continue
        where = lower if shape.any_case else text
        for begin in shape.begins:
            place = where.find(begin)
            while place >= 0:
                span = _span(shape, text, place)
                if span is not None:
                    yield span
                place = where.find(begin, max(place + len(begin), span[1] if span else 0))


def _span(shape: Shape, text: str, place: int) -> Span | None:
    if not shape.inside and place and text[place - 1] in _WORD and not _is_escape(text, place):
        return None
    if shape.name == "JWT" and text[max(place - 1, 0) : place] == "-":
        return None  # in the middle of one
    found = shape.pattern.match(text, place)
    if found is None or (shape.check is not None and not shape.check(found)):
        return None
    if shape.name == "Telegram":
        return _with_number_before(text, found)
    if (before := _BEFORE.get(shape.name)) is not None:
        return max(place - before, 0), found.end(), MASK
    group = 1 if found.re.groups else 0
    return found.start(group), found.end(group), MASK


def _is_escape(text: str, place: int) -> bool:
    """Whether the letter before it belongs to an escape, as the n of a line's end in JSON does."""
    return place >= 2 and text[place - 2] == "\\" and text[place - 1] in "nrt"


def _with_number_before(text: str, found: re.Match[str]) -> Span | None:
    start = found.start()
    while start and text[start - 1].isdigit() and found.start() - start < 12:
        start -= 1
    return (start, found.end(), MASK) if found.start() - start >= 7 else None


# -- numbers and keys that begin with nothing of their own -----------------------------------------------------------

_KINDS = bytes.maketrans(
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", b"0" * 10 + b"A" * 26 + b"a" * 26
)
_RUNS = bytes(120 if (chr(code).isalnum() and code < 128) or code in b"+/" else 32 for code in range(256))
_CARD = re.compile(rb"0000(?:0{10,12}+|([ .?_-])0000\1 ?0000\1 ?0{1,4}+|([ .?-])0{6}\2 ?0{4,5}+|  0000  0000  0000)")
_IBAN = re.compile(rb"AA00(?:[ ?]?[A0]{4}){2,7}(?:[ ?]?[A0]{1,4})?")  # "?" is a space that does not break
_AWS_SECRET = b"x" * 40


def numbered(text: str) -> Iterator[Span]:
    """Card numbers, IBANs and social security numbers by their sums and forms, and bare keys of AWS."""
    plain = text.encode("ascii", "replace")  # one byte for each character
    kinds = plain.translate(_KINDS)
    if b"0000" in kinds:
        yield from _cards(text, kinds)
    if b"AA00" in kinds:
        yield from _ibans(text, kinds)
    yield from _ssns(text, kinds)
    yield from _aws_secrets(text, plain)


def _cards(text: str, kinds: bytes) -> Iterator[Span]:
    for found in _CARD.finditer(kinds):
        start, end = found.span()
        if text[start] not in "23456" or _joins(kinds, start - 1, b"0Aa_.") or _joins(kinds, end, b"0Aa_"):
            continue
        if _is_issued(text[start:end]) and is_card(text[start:end]):
            yield start, end, MASK


_ISSUED = re.compile(
    r"(?:4\d{15}|5[1-5]\d{14}|2(?:2[2-9]|[3-6]\d|7[01])\d{13}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}|35\d{14}"
    r"|6(?:011|5\d\d|4[4-9]\d|2\d\d)\d{12}|(?:50|5[6-9]|6[0-9])\d{14})"
)


_SEPARATORS = re.compile(r"[\s._-]")


def _is_issued(number: str) -> bool:
    """Whether a card's number may begin so and be that long; ids and articles' numbers that pass the sum rarely do."""
    return _ISSUED.fullmatch(_SEPARATORS.sub("", number)) is not None


def _ibans(text: str, kinds: bytes) -> Iterator[Span]:
    for found in _IBAN.finditer(kinds):
        start, end = found.span()
        if _joins(kinds, start - 1, b"0Aa_"):
            continue
        while end - start >= 15:  # what follows it in capitals is no part of it
            if not _joins(kinds, end, b"0Aa_") and is_iban(text[start:end]):
                yield start, end, MASK
                break
            end = text.rfind(" ", start, end - 1 if kinds[end - 1 : end] == b" " else end)


def _ssns(text: str, kinds: bytes) -> Iterator[Span]:
    place = kinds.find(b"000-00-0000")
    while place >= 0:
        end = place + 11
        alone = not _joins(kinds, place - 1, b"0Aa_-.") and not _joins(kinds, end, b"0Aa_-")
        if alone and is_ssn(text[place:end]):
            yield place, end, MASK
        place = kinds.find(b"000-00-0000", end)


def _aws_secrets(text: str, plain: bytes) -> Iterator[Span]:
    runs = plain.translate(_RUNS)
    place = runs.find(_AWS_SECRET)
    while place >= 0:
        end = runs.find(b" ", place)
        end = len(runs) if end < 0 else end
        start = place
        if (
            end - start == 40
            and not _joins(plain, start - 1, b"_-.")
            and not _joins(plain, end, b"_-=.")
            and _is_aws_secret(text[start:end])
        ):
            yield start, end, MASK
        place = runs.find(_AWS_SECRET, end)


def _is_aws_secret(key: str) -> bool:
    digits = sum(char.isdigit() for char in key)
    lower, upper = sum(char.islower() for char in key), sum(char.isupper() for char in key)
    return min(lower, upper) >= 6 and 1 <= digits <= 20 and key.count("/") <= 5 and is_random(key, 4.2)


def _joins(kinds: bytes, place: int, which: bytes) -> bool:
    """Whether one of these stands there."""
    return 0 <= place < len(kinds) and kinds[place] in which
