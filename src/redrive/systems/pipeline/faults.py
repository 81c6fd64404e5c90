"""Faults of a node, in the words of the contract, and which of them an error of gRPC is."""

from __future__ import annotations

import grpc

from redrive.errors import HandlerError
from redrive.model import Category, Failure, Letter, Reason
from redrive.systems.pipeline.error_types import ErrorType
from redrive.systems.pipeline.wire import MOST_INLINE, MOST_MESSAGE

_FINAL = {
    ErrorType.MALFORMED: Category.VALIDATION,
    ErrorType.TOO_LARGE: Category.VALIDATION,
    ErrorType.MAX_HOPS: Category.PERMANENT,
    ErrorType.MODULE_ERROR: Category.PERMANENT,
}
"""Those that no retry will change."""
_CATEGORIES = {**_FINAL, ErrorType.RETRIES_EXHAUSTED: Category.TRANSIENT}  # the others are about reaching the module
_REFUSES = frozenset(
    {
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
    }
)
_SIZED = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.OUT_OF_RANGE)
_OVERSIZED = (
    "larger than max",  # C, and all languages on top of it; Go; Node
    "exceeds maximum size",  # Java
    "exceeds the maximum configured message size",  # .NET
    "message length too large",  # Rust
)
_TRAVELS = (
    f"a call carries {MOST_MESSAGE:,} bytes, {MOST_INLINE:,} of them a document (less, where a module takes less): put "
    "a larger one into a repository and carry it as `document_ref`"
)
_UNREACHED = ("failed to connect", "resolution failed", "errors resolving")
_OF_REASON = {
    Reason.UNDECODABLE: ErrorType.MALFORMED,
    Reason.TOO_LARGE: ErrorType.TOO_LARGE,
    Reason.CRASHED: ErrorType.RETRIES_EXHAUSTED,
    Reason.ATTEMPTS: ErrorType.RETRIES_EXHAUSTED,
}


class NodeFault(HandlerError):
    """A node could not do its work on a stream. The code says why, and whether trying again may help."""

    def __init__(self, kind: ErrorType, message: str) -> None:
        super().__init__(message, code=kind.value, category=_CATEGORIES.get(kind, Category.NETWORK))
        self.kind = kind
        self.retryable = kind not in _FINAL

    @property
    def never_arrived(self) -> bool:
        """Nothing of the call has reached the module, so that another instance may have it at once."""
        return self.kind in (ErrorType.CONNECTION_REFUSED, ErrorType.MODULE_UNAVAILABLE)

    @property
    def blames_instance(self) -> bool:
        """It is the instance that is dead or hangs, and not the stream that is bad."""
        return self.never_arrived or self.kind is ErrorType.TIMEOUT


class GivenUp(NodeFault):
    """The stream was held back for all its patience, and is not tried again."""

    def __init__(self, kind: ErrorType, message: str) -> None:
        super().__init__(kind, message)
        self.retryable = False


def fault_of(error: grpc.aio.AioRpcError, module: str, address: str) -> NodeFault:
    """The row of the trigger table that an error of gRPC belongs to."""
    code, details = error.code(), (error.details() or "").strip()
    said = f"module {module!r} at {address}: {code.name}{f': {details}' if details else ''}"
    low = details.lower()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return NodeFault(ErrorType.TIMEOUT, said)
    if code is grpc.StatusCode.UNAVAILABLE and "refused" in low:
        return NodeFault(ErrorType.CONNECTION_REFUSED, said)
    if code is grpc.StatusCode.UNAVAILABLE and any(words in low for words in _UNREACHED):
        return NodeFault(ErrorType.MODULE_UNAVAILABLE, said)
    if code in _SIZED and any(words in low for words in _OVERSIZED):
        return NodeFault(ErrorType.TOO_LARGE, f"{said}: {_TRAVELS}")
    return NodeFault(ErrorType.MODULE_ERROR if code in _REFUSES else ErrorType.RETRIES_EXHAUSTED, said)


def error_type(letter: Letter) -> str:
    """The contract's word for why a stream is dead."""
    code = letter.last.code
    if code in ErrorType.__members__:
        return str(code)
    if letter.last.type.endswith("AttemptTimeout"):
        return ErrorType.TIMEOUT
    return _OF_REASON.get(letter.reason, ErrorType.MODULE_ERROR)


def retries_made(failure: Failure) -> int:
    """As the contract counts: every failed attempt, but none for what is never retried."""
    return failure.attempt if failure.retryable else failure.attempt - 1
