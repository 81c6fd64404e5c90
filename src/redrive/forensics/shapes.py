"""Secrets that are known by their looks, wherever they stand.

A text is first searched for the few characters that each kind begins with, which is fast; only where they stand is
looked closely, by a pattern that starts right there and whose repeats are possessive or bounded. So the work grows
with the length of the text, whatever is in it.
"""

from __future__ import annotations

import math
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from redrive.forensics.secrets import MASK, is_card, is_iban, is_ssn

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


_TAIL = {"w": r"[\w-]", "a": r"[A-Za-z0-9]", "h": r"[0-9a-f]", "A": r"[A-Z0-9]", "d": r"[\w.-]", "b": r"[\w+/=.~-]"}


def _prefixed(name: str, begins: str, tail: str, least: int) -> Shape:
    prefixes = tuple(begins.split())
    either = "|".join(map(re.escape, prefixes))
    return Shape(name, prefixes, re.compile(rf"(?:{either}){_TAIL[tail]}{{{least},}}+"))


def _is_basic(match: re.Match[str]) -> bool:
    """`Basic` is also a plain word, so what follows must be a name and a password."""
    try:
        said = b64decode(match[1].rstrip("=") + "==").decode()
    except ValueError:
        return False
    return ":" in said and said.isprintable()


def _is_random(text: str, least: float) -> bool:
    """Whether its characters are as mixed as those of a key."""
    counts = Counter(text).values()
    return -sum(count / len(text) * math.log2(count / len(text)) for count in counts) >= least


def _is_token_user(match: re.Match[str]) -> bool:
    return any(char.isdigit() for char in match[1]) and _is_random(match[1], 3.0)


_PEM = (
    r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----[^\"'<>{}]*?"
    r"(?:-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----|(?=\\*[\"'<>{}]|\Z))"
)
_USER = r":\\?/\\?/[^\s/:@?#\"'<>\\]{0,256}+:"

SHAPES: tuple[Shape, ...] = (
    Shape("private key", ("-----BEGIN ",), re.compile(_PEM), inside=True),
    Shape(
        "password in a URL",
        ("://", ":\\/\\/"),
        re.compile(
            _USER + r"(?!\d{1,5}(?:[/?#]|\Z))"
            r"([^\s/?#\"'<>\\]{1,1024}(?=@)|[^\s\"'<>\\]{1,200}?(?=@[\w.\[-]))"
        ),
        inside=True,
    ),
    Shape(
        "token as URL user",
        ("://", ":\\/\\/"),
        re.compile(r":\\?/\\?/([\w.~%+-]{16,512}+)(?=@)"),
        _is_token_user,
        inside=True,
    ),
    Shape("JWT", ("eyJ",), re.compile(r"eyJ[\w-]{8,}+\.[\w-]++(?:\.[\w-]*+)?(?:\.[\w-]++){0,2}")),
    Shape(
        "Bearer",
        ("bearer ", "bearer%20"),
        # a word after it is prose ("bearer authentication"), unless it is long or has more than letters
        re.compile(r"(?i:bearer)(?: {1,8}|%20)((?=[\w.~+/=-]{0,64}[\d_]|\S{16}|[\w]{1,64}[.~+/-]\w)[\w.~+/=-]{6,}+)"),
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
        ("/api/webhooks/",),
        re.compile(r"/api/webhooks/(\d{10,25}/[\w-]{20,}+)"),
        inside=True,
    ),
    Shape(
        "Teams webhook",
        (".webhook.office.com/",),
        re.compile(r"\.webhook\.office\.com/(webhookb2/[\w@/-]{20,}+)"),
        inside=True,
    ),
    Shape("Telegram", (":AA",), re.compile(r":AA[\w-]{32,34}+(?![\w-])"), inside=True),
    Shape("Azure AD secret", ("Q~",), re.compile(r"Q~[\w.~-]{31,34}+(?![\w.~-])"), inside=True),
    Shape("Terraform Cloud", (".atlasv1.",), re.compile(r"\.atlasv1\.[\w=-]{50,}+"), inside=True),
    _prefixed("GitHub", "ghp_ gho_ ghu_ ghs_ ghr_", "a", 20),
    _prefixed("GitHub fine-grained", "github_pat_", "w", 20),
    _prefixed("GitLab", "glpat- gldt- glrt- glcbt- glptt- glft- glimt- glagent- gloas- glsoat- GR1348941", "w", 16),
    _prefixed("Slack", "xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xapp- xoxe.xox", "w", 10),
    _prefixed("Stripe", "sk_live_ sk_test_ rk_live_ rk_test_ pk_live_ pk_test_ sk_prod_ rk_prod_", "w", 10),
    _prefixed("Stripe webhook", "whsec_", "b", 16),
    _prefixed("Google API key", "AIza", "w", 30),
    _prefixed("Google OAuth", "ya29.", "d", 20),
    _prefixed("Google client secret", "GOCSPX-", "w", 20),
    _prefixed("SendGrid", "SG.", "d", 30),
    _prefixed("OpenAI, Anthropic", "sk-", "w", 20),
    _prefixed("npm", "npm_", "a", 30),
    _prefixed("PyPI", "pypi-AgE", "w", 40),
    _prefixed("our own", "rdr_", "w", 4),
    _prefixed("Vault", "hvs. hvb. hvr.", "w", 20),
    _prefixed("DigitalOcean", "dop_v1_ doo_v1_ dor_v1_", "h", 40),
    _prefixed("Shopify", "shpat_ shpca_ shppa_ shpss_", "a", 30),
    _prefixed("Square", "sq0atp- sq0csp- EAAA", "w", 22),
    _prefixed("Databricks", "dapi", "h", 32),
    _prefixed("Docker Hub", "dckr_pat_ dckr_oat_", "w", 20),
    _prefixed("Grafana", "glsa_ glc_", "b", 30),
    _prefixed("Hugging Face", "hf_ api_org_", "a", 30),
    _prefixed("Linear", "lin_api_ lin_oauth_", "a", 30),
    _prefixed("Notion", "ntn_ secret_", "a", 40),
    _prefixed("Postman", "PMAK-", "w", 40),
    _prefixed("Pulumi", "pul-", "h", 40),
    _prefixed("RubyGems", "rubygems_", "h", 40),
    _prefixed("Sentry", "sntrys_ sntryu_", "b", 40),
    _prefixed("New Relic", "NRAK- NRJS- NRII- NRAA-", "w", 15),
    _prefixed("PlanetScale", "pscale_tkn_ pscale_pw_ pscale_oauth_", "d", 30),
    _prefixed("Doppler", "dp.pt. dp.st. dp.ct. dp.sa.", "d", 40),
    _prefixed("Dynatrace", "dt0c01. dt0s01.", "d", 60),
    _prefixed("age", "AGE-SECRET-KEY-1", "A", 50),
    _prefixed("Mailgun", "key-", "h", 32),
    _prefixed("Twilio", "SK AC", "h", 32),
    _prefixed("Alibaba", "LTAI", "a", 16),
    _prefixed("EasyPost", "EZAK EZTK", "a", 50),
    _prefixed("Duffel, ReadMe, Typeform, Prefect", "duffel_live_ duffel_test_ rdme_ tfp_ pnu_", "w", 30),
    _prefixed("Brevo", "xkeysib- xsmtpsib-", "w", 60),
    _prefixed("Shippo", "shippo_live_ shippo_test_", "h", 40),
    _prefixed("Flutterwave", "FLWSECK_TEST- FLWSECK- FLWPUBK_TEST-", "w", 12),
    _prefixed("Fly.io", "fo1_ fm1_ fm2_ fm1r_ fm2r_", "b", 40),
    _prefixed("1Password", "ops_eyJ", "b", 40),
    _prefixed("Heroku", "HRKU-", "w", 36),
    _prefixed("Supabase, Vercel, Railway", "sbp_ vcp_ vck_", "a", 24),
    _prefixed("Atlassian", "ATATT3xFfGF0 ATCTT3xFfGF0 ATBB", "b", 24),
    _prefixed("Cloudflare", "v1.0-", "h", 100),
    Shape(
        "AWS key id",
        ("AKIA", "ASIA", "ABIA", "ACCA", "AROA", "AIDA"),
        re.compile(r"A(?:KIA|SIA|BIA|CCA|ROA|IDA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ),
)
_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


def shaped(text: str, lower: str) -> Iterator[Span]:
    """The spans of `text` that look like a secret; `lower` is the same in small letters."""
    for shape in SHAPES:
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
    if shape.name == "Azure AD secret":
        return place - 4 if place >= 4 else 0, found.end(), MASK
    if shape.name == "Terraform Cloud":
        return max(place - 14, 0), found.end(), MASK
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
_CARD = re.compile(rb"0000(?:0{8,15}+|([ -])0000\1 ?0000\1 ?0{1,4}+|([ -])0{6}\2 ?0{4,5}+)")
_IBAN = re.compile(rb"AA00(?: ?[A0]{4}){2,7}(?: ?[A0]{1,4})?")
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
        if is_card(text[start:end]):
            yield start, end, MASK


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
            and not _joins(plain, start - 1, b"_-.=")
            and not _joins(plain, end, b"_-=.")
            and _is_aws_secret(text[start:end])
        ):
            yield start, end, MASK
        place = runs.find(_AWS_SECRET, end)


def _is_aws_secret(key: str) -> bool:
    digits = sum(char.isdigit() for char in key)
    lower, upper = sum(char.islower() for char in key), sum(char.isupper() for char in key)
    return min(lower, upper) >= 6 and 1 <= digits <= 20 and key.count("/") <= 5 and _is_random(key, 4.2)


def _joins(kinds: bytes, place: int, which: bytes) -> bool:
    """Whether one of these stands there."""
    return 0 <= place < len(kinds) and kinds[place] in which
