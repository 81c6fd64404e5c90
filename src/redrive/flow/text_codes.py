"""Pure: a code that a text names, and how one knows that it is a code.

A number is one only where it is spoken of as one: "503 Service Unavailable" and "status 503" are codes, "503 items",
"port 503" and "took 500 ms" are not.
"""

from __future__ import annotations

import errno
import re
from http import HTTPStatus

from redrive.flow.codes import (
    NETWORK,
    PERMANENT,
    PERMISSION,
    RESOURCE,
    TRANSIENT,
    VALIDATION,
    Code,
    Family,
    category_of,
    parse_code,
)
from redrive.model import Category

_HUMPS = re.compile(r"(?<=[a-z])(?=[A-Z])")
_NUMBER = re.compile(r"(?<!\d)[45]\d\d(?!\d)")
_REASONS = "|".join(
    (
        *(re.escape(status.phrase) for status in HTTPStatus if status >= 400),
        "Server Error|Client Error|Gateway Time-?out|Internal Error|Temporarily Unavailable|Slow Down|Unauthori[sz]ed",
        "Request Entity Too Large|Payload Too Large|Unprocessable (?:Entity|Content)|Backend fetch failed",
    )
)
_NO_COUNT = (  # what follows a number of things: a unit, "of", or a plural
    r"(?![.,]?\d)(?! ?(?:ms|sec|s|m|h|kb|mb|gb|kib|mib|gib|bytes|%|x|of|out of|times|more|or)\b)"
    r"(?! [a-z]{1,30}(?<!s)s\b(?! for url))"
)
_SAYS = r"(?:error|err|code|status|statuscode|response|returned|responded|replied|answered|got|received|with|was|http)"
_MAIL = re.compile(
    r"\b(?:e?smtp|mailbox|recipients?|rcpt|sender|relay|relaying|gr[ea]ylist|gr[ea]ylisted|spam|helo|ehlo|mail|starttls"
    r"|[45]\.\d{1,3}\.\d{1,3})\b",
    re.IGNORECASE,
)
_MAIL_ONLY = frozenset(map(str, (450, 452, 454, 455, 521, *range(530, 560), 571)))
"""Numbers that mail servers use and web servers do not."""
_SMTP = (
    re.compile(r"\bSMTP(?: (?:error|code|status))*[ :]+\(?([45]\d\d)\b", re.IGNORECASE),
    re.compile(r"(?:\A|[\s('\":;>\[])([45]\d\d)[ -]#?[45]\.\d{1,3}\.\d{1,3}\b"),  # as servers answer: 550 5.1.1 …
    re.compile(r"\(([45]\d\d), b['\"]"),  # as smtplib prints an answer
)
_HTTP = (
    re.compile(
        r"\bHTTPS?(?:/\d(?:\.\d)?)?(?: (?:error|code|status|response|request failed|with))*[ :=]+\(?([45]\d\d)\b",
        re.IGNORECASE,
    ),
    re.compile(r"\bstatus[ _]?(?:code)?['\"]?(?: (?:code|was|is|of))*[ :=]+['\"]?([45]\d\d)\b", re.IGNORECASE),
    re.compile(rf"\b([45]\d\d)[ :)\],'-]{{1,3}}(?:{_REASONS})\b", re.IGNORECASE),
    re.compile(rf"\b{_SAYS}\b['\"]?[ :=#(\[]{{1,3}}([45]\d\d)\b{_NO_COUNT}", re.IGNORECASE),
    re.compile(rf"\A\W{{0,3}}([45]\d\d)\b(?!\)? [A-Z]+_[A-Z_]+){_NO_COUNT}", re.IGNORECASE),
    re.compile(
        r"\b(?:\w{0,60}Error|\w{0,60}Exception|unavailable|gateway|timeout|limited|requests|found|forbidden|unauthorized)"
        r" ?[(\[]([45]\d\d)[)\],]",
        re.IGNORECASE,
    ),
)
_SHOUTED = re.compile(r"[A-Z]{5}|[cC]ode")  # without that nothing of gRPC is there
_GRPC = (
    re.compile(r"\bStatusCode\.([A-Z_]+)\b"),
    re.compile(r"\b(?:code|StatusCode) ?[=:] ?['\"]?([A-Z][A-Za-z_]{1,30})\b"),
    re.compile(
        r"\b(DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED|INVALID_ARGUMENT|PERMISSION_DENIED|FAILED_PRECONDITION|OUT_OF_RANGE"
        r"|ALREADY_EXISTS|DATA_LOSS)\b"
    ),
    re.compile(
        r"(?:\A|[\s:(])(UNAVAILABLE|UNAUTHENTICATED|UNIMPLEMENTED|ABORTED|CANCELLED|INTERNAL|NOT_FOUND|UNKNOWN)(?=:|\Z)"
    ),
)
_AWS = (
    re.compile(r"An error occurred \((\w{1,64})\)"),
    re.compile(r"Error ?Code: ?(\w{1,64})"),
    re.compile(r"api error (\w{1,64})"),
    re.compile(r"\A(?:[\w.]++[.$#])?([A-Z]\w{3,60}?)(?:Exception|Error)?: "),
)
_SQLSTATE = re.compile(
    r"\b(?:SQL ?STATE|sqlstate|SQLState)(?: ?code)?[ :=\[('\"]{1,3}([0-9A-Z]{5})\b"
    r"|\bERROR \d{4} \(([0-9A-Z]{5})\)|\bERROR: {1,2}([0-9A-Z]{5}):"
)
_SQL_CLASSES = {
    **dict.fromkeys(("08",), NETWORK),
    **dict.fromkeys(("40", "57", "55", "25"), TRANSIENT),
    **dict.fromkeys(("53", "58"), RESOURCE),
    **dict.fromkeys(("28", "42501"), PERMISSION),
    **dict.fromkeys(("22", "23", "44", "54"), VALIDATION),
    **dict.fromkeys(("42", "0A", "3D", "3F", "26", "2F", "XX"), PERMANENT),
}
"""By the class, the first two characters of an SQLSTATE; a whole one where it differs from its class."""
_ENHANCED = re.compile(r"\A\W{0,2}([45])\.\d{1,3}\.\d{1,3} ")  # what mail servers say without a number before it
_FETCH = re.compile(r"fetch failed\b|Failed to fetch\b")  # a TypeError of Node and of browsers, and no bug
_ERRNO = re.compile(r"\b(E[A-Z]{3,14}|EAI_[A-Z]{4,9})\b|\[Errno (\d{1,3})\]|\(os error (\d{1,3})\)")
_ERRNO_NAMES = {
    TRANSIENT: "EBUSY EAGAIN EWOULDBLOCK EINTR EDEADLK ESTALE EADDRINUSE EINPROGRESS EALREADY ETXTBSY",
    NETWORK: """
        ECONNREFUSED ECONNRESET ECONNABORTED ETIMEDOUT ESOCKETTIMEDOUT ETIMEOUT ENOTFOUND EPIPE EHOSTUNREACH ENETUNREACH
        ENETDOWN EHOSTDOWN ENETRESET ENOTCONN ESHUTDOWN EADDRNOTAVAIL EPROTO ESERVFAIL EAI_AGAIN EAI_FAIL EAI_NONAME
        EAI_NODATA""",
    RESOURCE: "ENOSPC EDQUOT EMFILE ENFILE ENOMEM ENOBUFS EAI_MEMORY",
    PERMISSION: "EACCES EPERM EROFS EAUTH",
    VALIDATION: "EINVAL EMSGSIZE ENAMETOOLONG EFBIG EILSEQ ERANGE EDOM EENVELOPE",
    PERMANENT: "ENOENT EEXIST EISDIR ENOTDIR ENOTEMPTY ELOOP EXDEV ENOSYS ENOTSUP EOPNOTSUPP ENXIO ENODEV",
}
_BY_ERRNO = {name: category for category, names in _ERRNO_NAMES.items() for name in names.split()}


def find_code_in(text: str) -> Code | None:
    """The first code that the text names and that somebody knows. A name says more than a number beside it."""
    named = _first(text, _AWS, Family.AWS) if "rror" in text or ": " in text else None
    if named is None and _SHOUTED.search(text) is not None:
        named = _first(text, _GRPC, Family.GRPC)
    if named is not None or _NUMBER.search(text) is None:
        return named
    return _first(text, _SMTP, Family.SMTP) or _web_or_mail(text)


def find_name_in(text: str) -> Category | None:
    """The category of an errno, an SQLSTATE or an enhanced status of mail, by the name that the text has for it."""
    for match in _ERRNO.finditer(text) if "E" in text or "(os" in text else ():
        name = match[1] or errno.errorcode.get(int(match[2] or match[3]), "")
        if name in _BY_ERRNO:
            return _BY_ERRNO[name]
    if _FETCH.match(text):
        return NETWORK
    enhanced = _ENHANCED.match(text)
    if enhanced is not None:
        return TRANSIENT if enhanced[1] == "4" else PERMANENT
    return _by_sqlstate(text)


def _by_sqlstate(text: str) -> Category | None:
    match = _SQLSTATE.search(text) if "SQL" in text or "sql" in text or "ERROR" in text else None
    if match is None:
        return None
    state = next(group for group in match.groups() if group)
    return _SQL_CLASSES.get(state) or _SQL_CLASSES.get(state[:2])


def _first(text: str, patterns: tuple[re.Pattern[str], ...], family: Family) -> Code | None:
    for pattern in patterns:
        match = pattern.search(text)
        code = _known(match[1], family) if match else None
        if code is not None:
            return code
    return None


def _known(value: str, family: Family) -> Code | None:
    if family is Family.GRPC and not value.isupper():
        value = _HUMPS.sub("_", value).upper()  # Go and .NET print ResourceExhausted
    code = parse_code(value, family)
    return code if code is not None and code.family is family and category_of(code) is not None else None


def _web_or_mail(text: str) -> Code | None:
    code = _first(text, _HTTP, Family.HTTP)
    if code is None or "http" in text.lower():
        return code
    mail = code.value in _MAIL_ONLY or _MAIL.search(text) is not None
    return Code(code.value, Family.SMTP) if mail else code
