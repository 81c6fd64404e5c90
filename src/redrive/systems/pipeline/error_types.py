"""Why a stream is dead, in the words of the contract."""

from __future__ import annotations

from enum import StrEnum


class ErrorType(StrEnum):
    """Why a stream is in the DLQ. `success=false` is not among them: it is no reason to be there."""

    MODULE_UNAVAILABLE = "MODULE_UNAVAILABLE"
    TIMEOUT = "TIMEOUT"
    CONNECTION_REFUSED = "CONNECTION_REFUSED"
    RETRIES_EXHAUSTED = "RETRIES_EXHAUSTED"
    MALFORMED = "MALFORMED"
    MAX_HOPS = "MAX_HOPS"
    TOO_LARGE = "TOO_LARGE"
    MODULE_ERROR = "MODULE_ERROR"  # the module refuses the call itself: not implemented, no permission
