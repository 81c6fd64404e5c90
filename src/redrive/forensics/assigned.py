"""Secrets that are known by the key they stand under, in every notation that people and programs use.

`password=S`, `password: S`, `"password": "S"` (and the same escaped, at any level), `password => S`, `:= S`,
`--password S`, `<password>S</password>`, `{"name": "password", "value": "S"}`, form parts. A text is searched for the
beginnings of keys first, and looked at closely only there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from redrive.forensics.binaries import BEHIND_A_KEY
from redrive.forensics.notations import (
    AFTER_NAME,
    ALGORITHMS,
    ANNOTATED,
    ARGUMENT,
    ASSIGNS,
    BELOW,
    BLOCK,
    BORDERS,
    BRACKETS,
    CALLS,
    CHANGED,
    CODE,
    COMPLAINT,
    ENTITY,
    EXPORTS,
    FORMATTED,
    FRAME,
    HEADER_NAME,
    HEREDOC,
    LOC_AFTER,
    LOC_BEFORE,
    NAMED,
    NAMED_PLAINLY,
    NAMES_ONLY,
    NUMBER,
    PAIRED,
    PART,
    PART_END,
    PLACEHOLDER,
    RAISED,
    READS,
    REST_OF_JSON_LINE,
    REST_OF_LINE,
    SCHEMA,
    SCHEME,
    SIBLING,
    SIGNS,
    SIZED,
    TAG,
    TERM,
    TOLD,
    TUPLE_AFTER,
    TUPLE_BEFORE,
    VALUE,
    VALUE_BEFORE,
    WORD,
    WRAPPED,
)
from redrive.forensics.prose import PROSE
from redrive.forensics.secret_keys import Key
from redrive.forensics.secrets import MASK, NOTHING
from redrive.forensics.shapes import Span

_MOST = 1 << 16  # of a value that is looked at, before it is masked as far as that
_LONGEST_ELEMENT = 4096
_MOST_KEYS = 2048
_LONGEST_SETTING = 4096
_LONGEST_LINE = 512
_SCHEMES = frozenset(
    [
        "basic",
        "bearer",
        "token",
        "digest",
        "negotiate",
        "ntlm",
        "hawk",
        "apikey",
        "api-key",
        "key",
        "oauth",
        "ssws",
        "gnap",
        "jwt",
        "dpop",
        "privatetoken",
        "scram-sha-256",
        "aws4-hmac-sha256",
    ]
)
_FAR = 200
_CLOSES = {"[": "]", "{": "}", "(": ")"}


def assigned(text: str, keys: list[Key], is_json: bool) -> Iterator[Span]:
    """What stands under these keys; behind very many of them all is masked, since nobody writes so but to be slow."""
    done = 0
    for count, key in enumerate(keys):
        if key.start < done:
            continue
        if count >= _MOST_KEYS:
            yield key.start, len(text), MASK
            return
        span = _Around(text, key, is_json).span()
        if span is not None and text[span[0] : span[1]].strip().lower() not in NOTHING:
            yield span
            done = span[1]


class _Around:
    """What stands around one key."""

    def __init__(self, text: str, key: Key, is_json: bool) -> None:
        self._text, self._key, self._json = text, key, is_json
        self._before = text[key.start - 1] if key.start else "\n"

    def span(self) -> Span | None:
        text, key = self._text, self._key
        if (tag := self._element()) is not None:
            return tag
        if (frame := FRAME.match(text, key.end)) is not None:
            return self._framed(frame)
        if key.name.startswith("-") and (argument := ARGUMENT.match(text, key.end)) is not None:
            return (*argument.span("plain"), MASK) if argument["plain"] else self._value(argument.end(), quoted=False)
        signs = SIGNS.match(text, key.end)
        if signs is not None:
            return self._assignment(signs)
        if (told := TOLD.match(text, key.end)) is not None:
            return self._told(told)
        if self._before == "{" and (term := TERM.match(text, key.end)) is not None:
            return self._value(term.end(), quoted=False)
        if self._before in "\"'" and (sized := SIZED.match(text, key.end)) is not None:
            return self._value(sized.end(), quoted=False)
        if self._before == "=" and (part := PART.match(text, key.end)) is not None:
            return self._part(part)
        return self._pair() if self._before in "\"'`" else None

    def _framed(self, frame: re.Match[str]) -> Span:
        """Bytes that look like a text, such as a short message of Protobuf: one that says what comes, its length, and
        then the value. Whatever it is, as much is hidden as in bytes that look like none."""
        length = int(frame["hex"], 16) if frame["hex"] else ord(frame["length"] or "\0")
        reach = _MOST if length > 127 else max(length, BEHIND_A_KEY)
        return frame.start(), min(frame.end() + reach, len(self._text)), MASK

    def _told(self, told: re.Match[str]) -> Span | None:
        """What pydantic, PostgreSQL, Kubernetes and people write instead of an assignment."""
        if told["row"]:
            return (*told.span("row"), MASK)
        if told["said"]:
            said = told["said"].rstrip(".,;:!?)")
            return (told.start("said"), told.start("said") + len(said), MASK) if _looks_random(said) else None
        for name in ("plain", "inside"):
            if told[name]:
                return self._mixed(told.start(name), told[name].rstrip(".,;:!?"))
        if told["columns"]:
            return None if self._key.weak or not self._begins_line() else self._word(told.end())
        if told["beside"] and NAMED_PLAINLY.search(self._text[max(self._key.start - 16, 0) : self._key.start]) is None:
            return None
        return self._value(told.end(), quoted=False)

    def _mixed(self, start: int, said: str) -> Span | None:
        """Behind a key and a space: only what has letters and digits, and is no name of a method."""
        is_mixed = any(map(str.isdigit, said)) and any(map(str.isalpha, said)) and "=" not in said
        if self._key.weak or len(said) < 6 or not is_mixed or ALGORITHMS.match(said):
            return None
        if self._key.name.lower().endswith("authorization"):
            return None  # `CREATE SCHEMA redrive AUTHORIZATION user1`
        return start, start + len(said), MASK

    def _scheme(self, place: int) -> Span | None:
        """All of an Authorization: its scheme is only the first word."""
        if not self._key.name.lower().endswith("authorization"):
            return None
        found = SCHEME.match(self._text, place)
        if found is None:
            return None
        scheme, said = found[0].split(" ", 1)[0].lower(), found["one"]
        if said and (said.lower() in PROSE or not (scheme in _SCHEMES or _looks_random(said))):
            return None
        return place, found.end(), MASK

    def _assignment(self, signs: re.Match[str]) -> Span | None:
        if signs["compared"]:
            return None if self._key.weak else self._value(signs.end(), quoted=False)
        if not self._begins_line() and (scheme := self._scheme(signs.end())) is not None:
            return scheme
        if signs["space"]:
            return None if self._key.weak else self._value(signs.end(), quoted=False)
        if signs["colon"] and not signs["before"]:
            return self._line(signs.end())
        if signs["sign"] in ("=", ":=") and not signs["before"] and self._begins_line():
            return self._setting(signs.end())
        if signs["before"] == "`" and self._text[signs.end() : signs.end() + 1] not in tuple("`\"'"):
            return None  # a word of a sentence: "`token`: what a program shows"
        return self._value(self._over_lines(signs), quoted=bool(signs["before"]) and bool(signs["colon"]))

    def _setting(self, place: int) -> Span | None:
        """`key=value` that begins its line: to the end of the line, unless something else is assigned on it."""
        text = self._text
        if (heredoc := HEREDOC.match(text, place)) is not None:
            end = re.compile(rf"\n[ \t]*{heredoc['mark']}\b").search(text, heredoc.end() - 1, heredoc.end() + _MOST)
            return heredoc.end(), end.start() if end is not None else len(text), MASK
        span = self._value(place, quoted=False)
        if span is None or span[0] != place or text[place : place + 1] in tuple("[{("):
            return span
        rest = (REST_OF_JSON_LINE if self._json else REST_OF_LINE).match(text, place, place + _LONGEST_SETTING)
        if rest is None or "(" in rest[0] or ASSIGNS.search(rest[0]) or _is_prose(rest[0].partition(" ")[2]):
            return span
        return place, max(span[1], place + len(rest[0].rstrip())), MASK

    def _over_lines(self, signs: re.Match[str]) -> int:
        """In JSON a value may stand on the next line."""
        place = signs.end()
        if signs["before"] and signs["colon"]:
            while place < len(self._text) and self._text[place].isspace():
                place += 1
        return place

    def _line(self, place: int) -> Span | None:
        """`key: value`: to the end of its line, if the key begins it; otherwise one word, if it is none of prose."""
        text = self._text
        if self._before in "\"'" and text[place : place + 1] == self._before:
            return None  # `getpass("password: ")`
        if self._begins_line() and ANNOTATED.match(text, place) is not None:
            return None
        if (wrapped := WRAPPED.match(text, place)) is not None:
            return self._value(wrapped.end(), quoted=False)
        if text[place : place + 1] in tuple("\"'`{[") or text[place : place + 2] in ("b'", 'b"', '\\"', "\\'"):
            return self._value(place, quoted=False)
        if text[place - 1 : place] == ":" and not self._begins_line() and self._key.weak:
            return None  # a:b is no assignment, where a may be anything
        if (end := self._quoted_until(place)) is not None:
            return (place, end, MASK) if not _is_prose(text[place:end]) else None
        if self._is_raised() and not ASSIGNS.search(text, place, place + 256):
            rest = REST_OF_LINE.match(text, place)
            return None if rest is None or _is_prose(rest[0]) else (place, place + len(rest[0].rstrip()), MASK)
        if self._begins_line():
            if (block := BLOCK.match(text, place)) is not None:
                return block.start(), block.end(), f"{MASK}\n" if block[1].endswith("\n") else MASK
            if (below := self._below(place)) is not None:
                return below
            rest = (REST_OF_JSON_LINE if self._json else REST_OF_LINE).match(text, place)
            if rest is None or ((self._key.weak or _is_header(self._key.name)) and _is_prose(rest[0])):
                return None
            return rest.start(), rest.start() + len(rest[0].rstrip()), MASK
        return self._word(place)

    def _below(self, place: int) -> Span | None:
        """In YAML a value may stand below its key, alone or as the items of a list."""
        below = BELOW.match(self._text, place, place + _LONGEST_ELEMENT)
        if below is None:
            return None
        line = self._text.rfind("\n", max(self._key.start - _LONGEST_LINE, 0), self._key.start) + 1
        is_list = below["said"].startswith("-")
        before = self._text[line : self._key.start]
        if before.strip("- \t\"'") or len(below["indent"]) < len(before.rstrip("\"'")) + (not is_list):
            return None
        if self._key.weak and not is_list and not _looks_random(below["said"]):
            return None
        return (*below.span("said"), f"- {MASK}" if is_list else MASK)

    def _quoted_until(self, place: int) -> int | None:
        """Where the text ends that the key begins: `raise Refused("password: a b")`."""
        if self._json or self._before not in "\"'":
            return None
        end = self._text.find(self._before, place, place + _LONGEST_LINE)
        return None if end < 0 or "\n" in self._text[place:end] or end == place else end

    def _is_raised(self) -> bool:
        """Whether only the name of an error stands before the key on its line."""
        text, start = self._text, self._key.start
        line = max(text.rfind("\n", max(start - 132, 0), start) + 1, 0)
        return bool(line or start < 132) and RAISED.fullmatch(text, line, start) is not None

    def _word(self, place: int) -> Span | None:
        word = WORD.match(self._text, place)
        if word is None:
            return None
        said = word[0].rstrip(".,;:)]}!?")
        if said.lower() in PROSE or not said or CALLS.match(said) or (self._key.weak and not _looks_random(said)):
            return None
        return word.start(), word.start() + len(said), MASK

    def _begins_line(self) -> bool:
        start = self._key.start
        if (
            start
            and self._text[start - 1] in " \t"
            and (export := EXPORTS.search(self._text[max(start - 16, 0) : start]))
        ):
            start -= len(export[0])
        least = max(start - _LONGEST_LINE, 0)
        while start > least and self._text[start - 1] in " \t-":
            start -= 1
        return (
            not start
            or self._text[start - 1] in "\n\r"
            or (self._text[start - 2 : start] in ("\\n", "\\r") or (self._json and self._text[start - 1] == '"'))
        )

    def _value(self, place: int, *, quoted: bool) -> Span | None:
        """The value that begins there; `quoted`: a mask must be a text, as in JSON."""
        text = self._text
        found = VALUE.match(text, place)
        if found is None:
            return None
        if found["quote"]:
            return self._text_value(found)
        wrapped = self._quoted(MASK) if quoted else MASK
        if READS.match(text, place) is not None:
            return None
        if found["call"]:
            end = text.find(")", found.end(), found.end() + _MOST)
            names = NAMES_ONLY.match(text, found.end(), end if end >= 0 else found.end() + _LONGEST_LINE)
            return None if names else (place, end + 1 if end >= 0 else found.end(), MASK)
        if found["open"] and (SCHEMA.match(text, place) or COMPLAINT.match(text, place)):
            return None
        if found["open"]:
            end = _closed(text, place)
            says = text[place:end].strip("[]{}() \t\r\n")
            return (place, end, wrapped) if says and text[place:end] != MASK else None
        bare = found["bare"]
        if PLACEHOLDER.match(bare):
            return None
        if bare.lower() in NOTHING or bare.lower().startswith(("os.environ", "self.", "none")) or self._is_code(bare):
            return None
        return place, found.end(), wrapped

    def _is_code(self, bare: str) -> bool:
        """Whether the value is a name: `password=password`, `token=settings.token`, `session = await f()`."""
        name = self._key.name.rpartition(".")[2].lower()
        return bare.lower() == name or bare.lower().endswith(f".{name}") or CODE.match(bare) is not None

    def _quoted(self, mask: str) -> str:
        """The mask in the quotes that the key has."""
        text, start = self._text, self._key.start - 1
        quote = text[start] if start >= 0 and text[start] in "\"'`" else '"'
        escapes = start
        while escapes > 0 and text[escapes - 1] == "\\":
            escapes -= 1
        return f"{text[escapes:start]}{quote}{mask}{text[escapes:start]}{quote}"

    def _text_value(self, found: re.Match[str]) -> Span | None:
        start = found.end()
        if self._text.startswith(2 * found["quote"], start) and not found["escape"]:  # three of them
            end = self._text.find(3 * found["quote"], start + 2)
            return start + 2, end if end >= 0 else len(self._text), MASK
        end = _text_end(self._text, start, len(found["escape"]), found["quote"])
        if FORMATTED.fullmatch(self._text, start, end) is not None:
            return None
        if (changed := CHANGED.match(self._text, end)) is not None:  # as Terraform shows what it will do
            end = _text_end(self._text, changed.end(), len(found["escape"]), found["quote"])
        return start, end, MASK

    def _element(self) -> Span | None:
        """`<key>value</key>`, whatever is inside it."""
        text, key = self._text, self._key
        if self._before == ">" and (sibling := SIBLING.match(text, key.end)) is not None:
            end = text.find("<", sibling.end(), sibling.end() + _MOST)
            return sibling.end(), end if end >= 0 else len(text), MASK
        start = key.start
        if self._before == ";" and text[max(start - 4, 0) : start] == "&lt;":
            said = ENTITY.match(text, key.end)
            return (*said.span("said"), MASK) if said is not None else None
        if self._before == ":":
            start = text.rfind("<", max(start - 40, 0), start) + 1
        if not start or text[start - 1] != "<" or (tag := TAG.match(text, key.end)) is None:
            return None
        end = text.find(f"</{text[start : key.end]}", tag.end(), tag.end() + _LONGEST_ELEMENT)
        if end < 0:
            end = text.find("<", tag.end(), tag.end() + _MOST)
        return tag.end(), end if end >= 0 else min(len(text), tag.end() + _MOST), MASK

    def _pair(self) -> Span | None:
        """The key is itself a value: of a name beside a value, of a part of a form, or the first of two."""
        text, key = self._text, self._key
        before = text[max(key.start - 40, 0) : key.start]
        if NAMED.search(before) is not None:
            if (part := PART.match(text, key.end)) is not None:
                return self._part(part)
            if (paired := self._paired()) is not None:
                return self._value(paired, quoted=True)
            if (
                tag := re.compile(r"[\"'][^<>]{0,200}(?<!/)>").match(text, key.end)
            ) is not None and not self._is_input():
                end = text.find("<", tag.end(), tag.end() + _MOST)
                return tag.end(), end if end >= 0 else len(text), MASK
            return self._value_before()
        if "loc" in text[max(key.start - 256, 0) : key.start] and LOC_BEFORE.search(
            text, max(key.start - 256, 0), key.start
        ):
            found = LOC_AFTER.match(text, key.end)
            if re.search(r"missing\\*[\"']", text[max(key.start - 96, 0) : key.start]):
                return None  # what is there is all but the secret
            return self._value(found.end(), quoted=True) if found is not None else None
        if _is_header(key.name):
            listed = TUPLE_AFTER.match(text, key.end)
            if listed is not None:
                return self._header(listed)
        if TUPLE_BEFORE.search(before) and (comma := TUPLE_AFTER.match(text, key.end)) is not None:
            span = self._value(comma.end(), quoted=True)
            return span if span is not None and re.compile(r"\\*[\"']\s*[\])]").match(text, span[1]) else None
        return None

    def _is_input(self) -> bool:
        """Whether it is in a tag of HTML that has nothing inside it."""
        start = self._text.rfind("<", max(self._key.start - _LONGEST_LINE, 0), self._key.start)
        return start >= 0 and self._text[start : start + 6].lower() in ("<input", "<meta ")

    def _part(self, part: re.Match[str]) -> Span:
        last = PART_END.search(self._text, part.end(), part.end() + _MOST)
        return part.end(), last.start() if last else min(len(self._text), part.end() + _MOST), MASK

    def _header(self, comma: re.Match[str]) -> Span | None:
        """Lists of Node have a header's name and its value one behind the other."""
        span = self._value(comma.end(), quoted=True)
        return span if span is not None and not HEADER_NAME.fullmatch(self._text, *span[:2]) else None

    def _paired(self) -> int | None:
        """Where the value of a name begins that stands behind it."""
        text, after = self._text, AFTER_NAME.match(self._text, self._key.end)
        if after is None:
            return None
        border = BORDERS.search(text, after.end(), after.end() + _FAR)
        last = border.start() if border is not None else after.end() + _FAR
        for found in PAIRED.finditer(text, after.end(), last):
            if not text[found.start() - 1].isalnum():
                return found.end()
        return None

    def _value_before(self) -> Span | None:
        text, key = self._text, self._key
        names = key.start - len((NAMED.search(text[max(key.start - 40, 0) : key.start]) or [""])[0])
        offset = max(names - 768, 0)
        opened = text.rfind("{", offset, names)
        opened = opened if opened >= 0 else text.rfind("<", offset, names)
        if opened < 0 and text.find("(", offset, names) < 0:
            return None
        offset = max(offset, opened)
        for place in reversed([found.start() for found in re.finditer(r"(?i)\bv(?:al|alue)?\b", text[offset:names])]):
            found = VALUE_BEFORE.match(text, offset + place, names)
            if found is not None:
                said = found["value"]
                quotes = len(said) - len(said.lstrip("\\\"'"))
                inner = found.start("value") + quotes, found.end("value") - quotes
                return (*inner, MASK if quotes else self._quoted(MASK))
        return None


def _is_header(name: str) -> bool:
    return "-" in name or name.lower() in ("authorization", "cookie")


def _text_end(text: str, start: int, escapes: int, quote: str) -> int:
    """Where a text ends: at the next quote with as many escapes as it began with (or fewer: what holds it ends)."""
    place = start
    while (place := text.find(quote, place)) >= 0:
        before = place
        while before > start and text[before - 1] == "\\":
            before -= 1
        if place - before <= escapes or (escapes == 0 and (place - before) % 2 == 0):
            return before if place - before >= escapes and escapes else place - min(escapes, place - before)
        place += 1
    return len(text)


def _closed(text: str, place: int) -> int:
    """Behind the bracket that closes the one there; texts in between are skipped."""
    level, quote = 0, ""
    for found in BRACKETS.finditer(text, place):
        char = found[0]
        if quote:
            quote = "" if char == quote and not _is_escaped(text, found.start()) else quote
        elif char in "\"'":
            quote = char
        else:
            level += 1 if char in _CLOSES else -1
            if not level:
                return found.end()
    return len(text)


def _is_escaped(text: str, place: int) -> bool:
    before = place
    while before and text[before - 1] == "\\":
        before -= 1
    return (place - before) % 2 == 1


def _is_prose(text: str) -> bool:
    """Whether it reads as words rather than as a secret."""
    words = text.split()
    return len(words) > 1 and words[0].lower().strip(".,;:") in PROSE


def _looks_random(word: str) -> bool:
    """Whether it has more than letters, or is long: "unexpected token: foo" names none."""
    return (
        len(word) >= 16
        or (len(word) >= 4 and any(char.isdigit() for char in word) and not NUMBER.match(word))
        or (len(word) >= 6 and NUMBER.match(word) is not None)
    )
