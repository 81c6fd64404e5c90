"""Pure: the code an error carries, and what kind of trouble that code is.

Four families, kept apart because the same number means different things: SMTP 503 is a bad sequence of
commands and will stay one, HTTP 503 passes. No driver is imported: a code is found by where drivers put it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import islice
from typing import Any

from msgspec import Struct

from redrive.model import Category

TRANSIENT, NETWORK, RESOURCE = Category.TRANSIENT, Category.NETWORK, Category.RESOURCE
PERMISSION, VALIDATION, PERMANENT = Category.PERMISSION, Category.VALIDATION, Category.PERMANENT


class Family(StrEnum):
    """Who speaks: a code means nothing without it."""

    SMTP = "smtp"
    HTTP = "http"
    GRPC = "grpc"
    AWS = "aws"


class Code(Struct, frozen=True):
    """A code as its system prints it; without a family it is only shown."""

    value: str
    family: Family | None = None


_SMTP = {
    **dict.fromkeys((421, 450, 451, 454), TRANSIENT),
    452: RESOURCE,
    **dict.fromkeys((500, 501, 502, 503, 504, 553, 555), VALIDATION),
    **dict.fromkeys((530, 534, 535, 538), PERMISSION),
}
_HTTP = {
    **dict.fromkeys((408, 409, 421, 423, 425, 429), TRANSIENT),
    **dict.fromkeys((401, 402, 403, 407, 451), PERMISSION),
    **dict.fromkeys((404, 410), PERMANENT),
    499: NETWORK,  # nginx: the client went away
    **dict.fromkeys((501, 505, 506, 508, 510), PERMANENT),
    **dict.fromkeys((502, 504, 511), NETWORK),
    507: RESOURCE,
}
_HUNDREDS = {
    Family.SMTP: {4: TRANSIENT, 5: PERMANENT},
    Family.HTTP: {4: VALIDATION, 5: TRANSIENT},
}
_NUMBERS = {Family.SMTP: _SMTP, Family.HTTP: _HTTP}
_GRPC = {
    "OK": TRANSIENT,  # an error that says OK says nothing; all we know is that it failed
    "CANCELLED": TRANSIENT,
    "UNKNOWN": TRANSIENT,
    "INVALID_ARGUMENT": VALIDATION,
    "DEADLINE_EXCEEDED": NETWORK,
    "NOT_FOUND": PERMANENT,
    "ALREADY_EXISTS": PERMANENT,
    "PERMISSION_DENIED": PERMISSION,
    "RESOURCE_EXHAUSTED": RESOURCE,
    "FAILED_PRECONDITION": PERMANENT,
    "ABORTED": TRANSIENT,
    "OUT_OF_RANGE": VALIDATION,
    "UNIMPLEMENTED": PERMANENT,
    "INTERNAL": TRANSIENT,
    "UNAVAILABLE": NETWORK,
    "DATA_LOSS": PERMANENT,
    "UNAUTHENTICATED": PERMISSION,
}
_AWS_NAMES = {
    TRANSIENT: """
        Throttling Throttled RequestThrottled KMSThrottling EC2Throttled TooManyRequests SlowDown
        RequestLimitExceeded ProvisionedThroughputExceeded BandwidthLimitExceeded MaxSendingRateExceeded
        PriorRequestNotComplete ConcurrentModification TransactionInProgress OperationAborted
        ServiceUnavailable ServiceFailure InternalFailure InternalError InternalServerError""",
    NETWORK: "RequestTimeout",
    RESOURCE: """
        LimitExceeded QuotaExceeded ServiceQuotaExceeded DailyQuotaExceeded ResourceLimitExceeded
        InsufficientCapacity OverLimit""",
    PERMISSION: """
        AccessDenied AuthFailure AuthorizationError NotAuthorized UnauthorizedOperation OptInRequired
        ExpiredToken InvalidAccessKeyId InvalidClientTokenId MissingAuthenticationToken UnrecognizedClient
        IncompleteSignature InvalidSignature SignatureDoesNotMatch RequestExpired RequestTimeTooSkewed""",
    VALIDATION: """
        ValidationError BadRequest InvalidRequest InvalidAction MissingAction MissingParameter
        InvalidParameter InvalidParameterValue InvalidParameterCombination InvalidQueryParameter
        MalformedQueryString SerializationException EntityTooLarge MessageTooLong""",
    PERMANENT: """
        MessageRejected MailFromDomainNotVerified AccountSuspended AccountSendingPaused SendingPaused
        ConfigurationSetDoesNotExist ConfigurationSetSendingPaused TemplateDoesNotExist AlreadyExists
        NotFound ResourceNotFound NoSuchKey NoSuchBucket QueueDoesNotExist ConditionalCheckFailed""",
}
_SPELLED = re.compile(r"(?:(smtp|http|grpc|aws|ses)\s*[:/ ]\s*)?([\w.-]{1,64})", re.IGNORECASE)
_MOST_REFUSALS = 100
_MOST_SAID = 2000


def category_of(code: Code) -> Category | None:
    """What kind of trouble it is, or None for a code that nobody knows."""
    if code.family is Family.GRPC:
        return _GRPC.get(code.value)
    if code.family is Family.AWS:
        return _AWS.get(_stem(code.value))
    if code.family is None:
        return None
    number = int(code.value)
    return _NUMBERS[code.family].get(number) or _HUNDREDS[code.family].get(number // 100)


def parse_code(value: object, family: Family | None = None) -> Code | None:
    """Read 421, "smtp:421", "UNAVAILABLE" or "Throttling"; a bare number is HTTP unless a family is given."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    spelled = _SPELLED.fullmatch(str(int(value)) if isinstance(value, int) else value.strip())
    if spelled is None:
        return None
    prefix, text = spelled.groups()
    return _placed(text, _family(prefix) or family)


def find_code(error: BaseException) -> Code | None:
    """The code an error carries, wherever its driver put it. A hostile attribute is as good as none."""
    if type(error).__module__ == "builtins" and not error.__dict__:
        return None  # none of Python's own has one, unless somebody gave it
    return next((code for finder in _FINDERS if (code := finder(error)) is not None), None)


def read(thing: object, path: str) -> Any:
    """The attribute at that path, or None, whatever reading it does."""
    try:
        for name in path.split("."):
            thing = getattr(thing, name, None)
    except Exception:
        return None
    return thing


def said(error: BaseException) -> str:
    """What its message says, or nothing where saying it fails; cut, since a cause comes early."""
    try:
        return str(error)[:_MOST_SAID]
    except Exception:
        return ""


def _family(prefix: str | None) -> Family | None:
    if prefix is None:
        return None
    return Family.AWS if prefix.lower() == "ses" else Family(prefix.lower())


def _placed(text: str, family: Family | None) -> Code:
    """The code with its family: the given one where it can be that, else the family that knows the code."""
    if _is_number(text):
        return Code(text, family if family in _NUMBERS else Family.HTTP)
    if text.upper() in _GRPC and family in (None, Family.GRPC):
        return Code(text.upper(), Family.GRPC)
    return Code(text, Family.AWS if family is Family.AWS or _stem(text) in _AWS else None)


def _is_number(text: str) -> bool:
    return len(text) == 3 and text.isascii() and text.isdigit() and text[0] in "45"


def _stem(name: str) -> str:
    """One name for `Throttling` and `ThrottlingException`: services disagree about the ending."""
    return name.removesuffix("Exception").removesuffix("Error")


_AWS = {_stem(name): category for category, names in _AWS_NAMES.items() for name in names.split()}


def _find_smtp(error: BaseException) -> Code | None:
    """A temporary refusal before a final one: while one recipient can be reached, it is worth a retry."""
    values = [read(error, "smtp_code"), *_refusals(read(error, "recipients"))]
    if _module(error).startswith("aiosmtplib"):
        values.append(read(error, "code"))
    codes = [code for value in values if (code := _number(value, Family.SMTP)) is not None]
    return next((code for code in codes if code.value < "500"), codes[0] if codes else None)


def _refusals(recipients: object) -> Iterator[object]:
    """The codes of `{address: (code, text)}` (smtplib) or of a list of errors with a code (aiosmtplib)."""
    answers = recipients.values() if isinstance(recipients, dict) else recipients
    if not isinstance(answers, Iterable) or isinstance(answers, str | bytes):
        return
    for answer in islice(answers, _MOST_REFUSALS):
        yield answer[0] if isinstance(answer, tuple) and answer else read(answer, "code")


def _find_aws(error: BaseException) -> Code | None:
    response = read(error, "response")
    details = response.get("Error") if isinstance(response, Mapping) else None
    return parse_code(details.get("Code"), Family.AWS) if isinstance(details, Mapping) else None


def _find_grpc(error: BaseException) -> Code | None:
    """grpcio has `code()`, grpclib `status`, google.api_core `grpc_status_code`: each an enum member."""
    for path in ("code", "status", "grpc_status_code"):
        value = read(error, path)
        name = None if value is None else read(_called(value), "name")
        if isinstance(name, str) and name in _GRPC:
            return Code(name, Family.GRPC)
    return None


def _called(value: object) -> object:
    try:
        return value() if callable(value) else value
    except Exception:
        return None


def _find_http(error: BaseException) -> Code | None:
    paths = ("response.status_code", "response.status", "status_code", "status")
    codes = (_number(read(error, path), Family.HTTP) for path in paths)
    return next((code for code in codes if code is not None), None)


def _find_plain(error: BaseException) -> Code | None:
    value = read(error, "code")
    if value is None or isinstance(error, SystemExit):  # whose code is the status of a process
        return None
    return parse_code(value, Family.SMTP if _speaks_smtp(error) else None)


def _number(value: object, family: Family) -> Code | None:
    code = parse_code(value, family)
    return code if code is not None and code.family is family else None


def _speaks_smtp(error: BaseException) -> bool:
    return "smtp" in f"{_module(error)} {type(error).__name__} {said(error)}".lower()


def _module(error: BaseException) -> str:
    return str(type(error).__module__)


_FINDERS: tuple[Callable[[BaseException], Code | None], ...] = (
    _find_smtp,
    _find_aws,
    _find_grpc,
    _find_http,
    _find_plain,
)
