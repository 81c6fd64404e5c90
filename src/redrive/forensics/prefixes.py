"""Tokens that vendors let begin with letters of their own, so that they are known wherever they stand.

A text is searched for long runs of the characters that tokens are made of; only at the beginning of a run, and behind
the marks in it, is looked for a prefix, by its first two characters. So the work grows with the length of the text and
hardly with the number of kinds.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

_SHORTEST = 14  # no token is shorter
_CLASSES = {
    "w": r"[\w-]",
    "a": r"[A-Za-z0-9]",
    "c": r"[A-Za-z]",
    "l": r"[a-z0-9]",
    "h": r"[0-9a-fA-F]",
    "A": r"[A-Z0-9]",
    "d": r"[\w.=-]",
    "b": r"[\w+/=.~-]",
}
_END = r"(?![\w/+-])"


class _Prefix(NamedTuple):
    begins: str
    pattern: str


def _of(begins: str, tail: str, least: int) -> Iterator[_Prefix]:
    """Each of these, followed by at least so many characters of a class."""
    for begin in begins.split():
        yield _Prefix(begin, rf"{re.escape(begin)}{_CLASSES[tail]}{{{least},}}+")


def _just(begins: str, pattern: str) -> Iterator[_Prefix]:
    """Each of these, followed by exactly that."""
    for begin in begins.split():
        yield _Prefix(begin, re.escape(begin) + pattern)


_MIXED = r"(?=[\w-]{0,200}?[A-Z])(?=[\w-]{0,200}?[0-9])(?=[\w-]{0,200}?[a-z])"
_UUID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"

_PREFIXES: tuple[_Prefix, ...] = (
    # code and packages
    *_of("ghp_ gho_ ghu_ ghs_ ghr_ npm_", "a", 20),
    *_of("github_pat_ dckr_pat_ dckr_oat_", "w", 20),
    *_of("glpat- glrt-", "d", 16),
    *_of("gldt- glcbt- glptt- glft- glffct- glimt- glagent- gloas- glsoat- GR1348941", "w", 16),
    *_of("pypi-AgE", "w", 40),
    *_of("rubygems_ pul-", "h", 40),
    *_of("CLOJARS_", "l", 50),
    *_just("AKCp", r"[A-Za-z0-9]{60,}+"),
    *_just("cmVmd", r"[A-Za-z0-9]{59}" + _END),
    *_just("squ_ sqp_ sqa_ sgp_", r"(?:[0-9a-fA-F]{16}_|local_)?[0-9a-fA-F]{40}"),
    # clouds
    *_just("AKIA ASIA ABIA ACCA AROA AIDA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    *_just("ABSK", r"[A-Za-z0-9+/]{100,}+={0,2}"),
    *_of("bedrock-api-key-", "b", 20),
    *_of("AIza", "w", 30),
    *_of("ya29.", "d", 20),
    *_of("GOCSPX-", "w", 20),
    *_of("LTAI", "a", 16),
    *_of("dop_v1_ doo_v1_ dor_v1_", "h", 40),
    *_just("v1.0-", r"[0-9a-f]{24}-[0-9a-f]{100,}+"),
    *_of("HRKU- fo1_", "w", 36),
    *_of("fm1_ fm2_ fm1r_ fm1a_ fm2r_", "b", 40),
    *_just("AQVN", r"[\w-]{35,38}" + _END),
    *_just("YC", r"(?=[\w-]{0,38}[0-9])(?=[\w-]{0,38}[a-z])[\w-]{38}" + _END),
    *_just("t1.", r"[\w-]{10,}+=?\.[\w-]{86}"),
    *_of("sbp_ vcp_ vck_", "a", 24),
    *_of("tk-us- nvapi-", "w", 40),
    *_just("4b1d", r"(?=[a-z0-9]{0,38}[A-Z])[A-Za-z0-9]{38}" + _END),
    *_of("pscale_tkn_ pscale_pw_ pscale_oauth_", "d", 30),
    # secrets of operators
    *_of("hvs. hvb. hvr.", "w", 20),
    *_of("dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", "d", 40),
    *_of("AGE-SECRET-KEY-1", "A", 50),
    *_of("ops_eyJ", "b", 40),
    *_just("A3-", r"[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})-[A-Z0-9]{5}-[A-Z0-9]{5}-[A-Z0-9]{5}"),
    *_of("tskey-auth- tskey-api- tskey-client- tskey-scim- tskey-webhook-", "w", 16),
    *_of("dapi", "h", 32),
    *_of("pnu_", "a", 30),
    *_just("API-", r"(?=[A-Z]{0,25}[0-9])[A-Z0-9]{26}" + _END),
    *_just("pat. sat.", r"[\w-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}"),
    *_just("dnkey-", r"[\w=-]{26}-[\w=-]{52}"),
    *_of("rdr_", "w", 10),
    # monitoring
    *_of("glsa_ glc_ eyJrIjoi", "b", 30),
    *_of("sntrys_ sntryu_", "b", 40),
    *_of("NRAK- NRJS- NRII- NRAA-", "w", 15),
    *_of("dt0c01. dt0s01. dt0s16.", "d", 60),
    *_just("SG.", r"[\w=-]{16,32}\.[\w=-]{16,64}"),
    *_just("PMAK-", r"[0-9a-f]{24}-[0-9a-f]{34}"),
    # chats and mails
    *_of("xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xoxc- xoxd- xapp- xoxe.xox", "w", 10),
    *_of("key- pubkey-", "h", 32),
    *_just("SK AC", r"[0-9a-f]{32}" + _END),
    *_of("xkeysib- xsmtpsib-", "w", 60),
    *_just("A" * 22, r"(?=A{0,60}[^A])[A-Za-z0-9%]{80,100}" + _END),
    *_just("EAAC EAAM EAAB EAAG", r"[A-Za-z0-9]{90,}+" + _END),
    # money
    *_of("sk_live_ sk_test_ rk_live_ rk_test_ pk_live_ pk_test_ sk_prod_ rk_prod_", "w", 10),
    *_of("whsec_", "b", 16),
    *_of("sq0atp- sq0csp- sq0idp-", "w", 22),
    *_just("EAAA", _MIXED + r"[\w-]{22,}+" + _END),
    *_of("shpat_ shpca_ shppa_ shpss_", "a", 30),
    *_of("EZAK EZTK", "a", 50),
    *_of("shippo_live_ shippo_test_", "h", 40),
    *_of("FLWSECK_TEST- FLWSECK- FLWPUBK_TEST-", "w", 12),
    *_just("access-production- access-sandbox- access-development-", _UUID),
    *_of("duffel_live_ duffel_test_", "d", 30),
    *_of("sm_aat_ sm_pat_ sm_sat_", "a", 16),
    # models
    *_just("sk-", r"(?:[0-9a-f]{32,}+|" + _MIXED + r"[\w-]{20,}+)"),
    *_of("hf_ api_org_", "a", 30),
    *_of("gsk_ xai- pplx- r8_", "a", 30),
    # the rest
    *_of("figd_ tfp_ fio-u-", "d", 36),
    *_of("lin_api_ lin_oauth_ ntn_ secret_", "a", 30),
    *_of("rdme_", "l", 60),
    *_of("ATATT3xFfGF0 ATCTT3xFfGF0 ATBB", "b", 24),
    *_just("pat", r"[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    *_of("p8e- ico-", "a", 32),
    *_of("s-s4t2ud- s-s4t2af-", "h", 60),
    *_just("sl.", r"[\w=-]{130,}+"),
    *_just("ZXlK", r"[A-Za-z0-9+/=]{60,}+"),
)

_OPENSHIFT = re.compile(r"sha256~[\w-]{43}", re.ASCII)
_ONLY_LETTERS = 4
"""A prefix that is shorter than this and has no mark of its own counts only at the beginning of a run."""


def _by_start() -> dict[str, re.Pattern[str]]:
    grouped: dict[str, list[str]] = defaultdict(list)
    for prefix in _PREFIXES:
        grouped[prefix.begins[:2]].append(prefix.pattern)
    return {start: re.compile("|".join(patterns), re.ASCII) for start, patterns in grouped.items()}


_BY_START = _by_start()
_SHORT = frozenset(
    prefix.begins for prefix in _PREFIXES if len(prefix.begins) < _ONLY_LETTERS and prefix.begins.isalnum()
)
_RUN_CHARS = b"_.-+/"
_RUNS = bytes(120 if code in _RUN_CHARS or (chr(code).isalnum() and code < 128) else 32 for code in range(256))
_RUN = b"x" * _SHORTEST
_MARK = re.compile(r"[-./+]")
_ESCAPE = re.compile(r"\\+(?:[nrtbf]|u00[0-9A-Fa-f]{2}|/)|%[0-9A-Fa-f]{2}")


def prefixed(text: str, plain: bytes) -> Iterator[tuple[int, int]]:
    """Where tokens are; `plain` has one byte of ASCII for each character of the text."""
    runs = plain.translate(_RUNS)
    place = runs.find(_RUN)
    while place >= 0:
        end = runs.find(b" ", place + _SHORTEST)
        end = len(runs) if end < 0 else end
        if end - place != 36 or text[place + 8] != "-" or text[place + 23] != "-":  # those of a UUID
            yield from _in_run(text, place, end)
        place = runs.find(_RUN, end)


def _in_run(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    place, last = _past_escape(text, start), end - _SHORTEST
    is_first = True
    while True:
        pattern = _BY_START.get(text[place : place + 2])
        found = pattern.match(text, place) if pattern is not None else None
        if found is not None and (is_first or not _is_short(found)):
            yield found.span()
            place = found.end()
        mark = _MARK.search(text, place, end)
        if mark is None or mark.end() > last:
            return
        place, is_first = mark.end(), False


def _is_short(found: re.Match[str]) -> bool:
    return found[0][:2] in _SHORT or (found[0][:3] in _SHORT and found[0][3:4].isalnum())


def _past_escape(text: str, place: int) -> int:
    """The n of a line's end, or the hex of an escape, is no part of the run behind it."""
    before = text[place - 1] if place else ""
    if before not in ("\\", "%"):
        return place
    found = _ESCAPE.match(text, place - 1)
    return found.end() if found is not None else place


def anywhere(text: str) -> Iterator[tuple[int, int]]:
    """Where tokens are in a short text, whatever stands before them: in binary data a length may look as a letter."""
    yield from (found.span() for found in _OPENSHIFT.finditer(text))
    place = 0
    while place < len(text):
        pattern = _BY_START.get(text[place : place + 2])
        found = pattern.match(text, place) if pattern is not None else None
        if found is not None:
            yield found.span()
        place = found.end() if found is not None else place + 1
