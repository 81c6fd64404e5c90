"""Every exception Redrive raises on purpose.

RedriveError
├── ConfigError            a setting is wrong; the message names the key and what it takes
│   └── HandlerRefused       a handler cannot be one; the message names its file and line
├── UsageError             a call is wrong; the message says what to do instead
│   ├── UnknownSource        no such source; the nearest names are given
│   ├── NotAllowed           whoever asks may not do that
│   ├── TooManyListeners     as many pages are kept up to date as may be
│   ├── TooManyQuestions     as many costly questions are being answered as may be
│   ├── NotInScope           whoever asks reaches a part, and would act on the whole
│   ├── UnknownLetter        no such letter
│   ├── UnknownGroup         no such group
│   ├── UnknownReplay        no such replay
│   ├── ReplayExists         a replay of that id was made of another selection
│   ├── UnknownIncident      no such incident
│   ├── NoWayBack            the transport that a letter goes back through is not configured here
│   ├── NotReplayable        a letter is in a state in which it is not sent back
│   ├── NotFound             no such thing of a system
│   ├── ChangedMeanwhile     a letter is not as it was when it was read: nothing was written
│   ├── MessageTooLarge      over the body limit
│   ├── WrongOutcomes        a batch handler does not say in a readable way what became of its messages
│   ├── SendRefused          a broker will never take some of the messages that were sent (NotSent)
│   └── BadQuery             a filter that cannot be read
├── Unavailable            a backend does not answer now; the message was kept, try again later
│   ├── TransportUnavailable
│   │   └── SendUnavailable      a broker has not taken some of the messages that were sent (NotSent)
│   └── StoreUnavailable
├── NotSent                both of those: `results` says what became of each message, in their order
├── MissingExtra           a library of an extra is not installed; the message gives the pip line
├── Failed                 raised by batch handlers: these messages of the batch have failed, the others are done
├── NotNow                 raised by handlers that cannot begin now: given back, and no attempt is counted
└── HandlerError           raised by handlers, on purpose, to say what kind of failure it is
    ├── Permanent            do not try again
    └── Transient            try again
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from redrive.model import Category, Message

if TYPE_CHECKING:
    from redrive.transports.base import SendResult


class RedriveError(Exception):
    """The root: catch it to catch everything that is ours."""


class ConfigError(RedriveError):
    """A setting is wrong."""


class HandlerRefused(ConfigError):
    """What was to be a handler cannot be one."""


class UsageError(RedriveError):
    """A call is wrong."""


class NotAllowed(UsageError):
    """Whoever asks may not do that."""


class UnknownSource(UsageError):
    """There is no such source."""

    def __init__(self, source: str, known: Iterable[str], hint: str = "") -> None:
        self.source = source
        close = nearest(source, known) or ": nothing was sent to it, and no letter is of it"
        super().__init__(
            f"unknown source {source!r}{close}{'' if close.endswith('?') or not hint else '.'} {hint}".rstrip()
        )


class TooManyListeners(UsageError):
    """As many pages are kept up to date as may be."""


class TooManyQuestions(UsageError):
    """As many costly questions are being answered as may be at once; nothing was begun."""


class UnknownLetter(UsageError):
    """There is no such letter."""

    def __init__(self, letter_id: str) -> None:
        super().__init__(f"no letter {letter_id!r}: list them with `redrive letters`")


class UnknownGroup(UsageError):
    """There is no such group."""

    def __init__(self, group_id: str) -> None:
        super().__init__(f"no group {group_id!r}: list them with `redrive groups --closed`")


class UnknownReplay(UsageError):
    """There is no such replay."""

    def __init__(self, replay_id: str) -> None:
        super().__init__(f"no replay {replay_id!r}: list them with `redrive replays`")


class ReplayExists(UsageError):
    """A replay of that id was made of another selection."""

    def __init__(self, replay_id: str) -> None:
        super().__init__(
            f"replay {replay_id!r} exists already, and selected other letters: give the new one an id of its own, "
            f"or ask with the same query again to get the one there is"
        )


class UnknownIncident(UsageError):
    """There is no such incident."""

    def __init__(self, incident_id: str) -> None:
        super().__init__(f"no incident {incident_id!r}: list them with `redrive incidents`")


NOT_ALLOWED = "not-allowed:"
"""Begins the transport of a letter whose dead record names a source that nobody has allowed."""
ALLOW_IT = "the dead record names that source itself, and nobody has allowed it: `redrive collect --allow-source` does"


class NoWayBack(UsageError):
    """The transport that a letter goes back through is not configured in this process."""

    def __init__(self, letter_id: str, transport: str, known: Iterable[str], schemes: Iterable[str] = ()) -> None:
        if transport.startswith(NOT_ALLOWED):
            super().__init__(f"letter {letter_id} is not sent back: {ALLOW_IT}")
            return
        like = " or ".join(f"{scheme}://…" for scheme in schemes)
        super().__init__(
            f"letter {letter_id} goes back through the transport {transport!r}, which is not configured here "
            f"(there is {', '.join(sorted(known))}): set `transports.{transport}`{f' to {like}' if like else ''} "
            f"(REDRIVE_TRANSPORTS_{transport.upper().replace('-', '_')}), or retry it where it is"
        )


class NotReplayable(UsageError):
    """A letter is resolved, archived or on its way: it is not sent back."""

    def __init__(self, letter_id: str, state: str) -> None:
        super().__init__(f"letter {letter_id} is {state}: only pending, exhausted and sent ones are sent back")


class NotFound(UsageError):
    """There is no such thing; a system makes its own of it."""

    hint: str | None = None  # what to ask for instead

    def __init__(self, text: str, hint: str | None = None) -> None:
        super().__init__(text)
        self.hint = hint or self.hint


class NotInScope(UsageError):
    """Somebody who reaches a part would act on the whole."""


class ChangedMeanwhile(UsageError):
    """What was to be changed is not as it was when it was read: somebody was first, or it is on its way."""


class MessageTooLarge(UsageError):
    """The body is over the limit."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"the body has {size:,} bytes, over the limit of {limit:,}: send a reference to it, "
            f"or raise `body_limit` (REDRIVE_BODY_LIMIT)"
        )


class WrongOutcomes(UsageError):
    """A batch handler does not say in a readable way what became of its messages."""


class BadQuery(UsageError):
    """A filter cannot be read."""


class Unavailable(RedriveError):
    """A backend does not answer now."""

    def __init__(self, name: str, why: str = "") -> None:
        self.name = name
        self.why = why
        super().__init__(f"{name} is unavailable{': ' + why if why else ''}")


class TransportUnavailable(Unavailable):
    """The transport does not answer; what was leased comes back when its lease ends."""


class NotSent(RedriveError):
    """Some messages were not accepted. The others were: their results say so."""

    results: Sequence[tuple[Message, SendResult]] = ()  # one for each message, in the order they were sent

    @property
    def accepted(self) -> list[Message]:
        """Those that are durable: not to be sent again."""
        return [message for message, result in self.results if result.status == "accepted"]

    @property
    def not_accepted(self) -> list[Message]:
        """The others. One that is `unknown` may have been taken: sent again, it may be there twice."""
        return [message for message, result in self.results if result.status != "accepted"]


class SendRefused(NotSent, UsageError):
    """A broker will never take at least one of them: sent again as it is, it is refused again."""


class SendUnavailable(NotSent, TransportUnavailable):
    """Not now: what was not accepted may be sent again."""

    def __init__(self, why: str) -> None:
        RedriveError.__init__(self, why)
        self.name, self.why = "transport", why


def not_sent(results: Sequence[tuple[Message, SendResult]]) -> NotSent:
    """The error to raise where not all of them were accepted."""
    left = [(message, result) for message, result in results if result.status != "accepted"]
    refused = next(((message, result) for message, result in left if result.status == "refused"), None)
    message, result = refused or left[0]
    why = f"message {message.id!r} to {message.source!r} was not sent ({result.status}): {result.why}"
    if len(results) > 1:
        why += f" ({len(left):,} of {len(results):,} messages were not accepted: `results` of this error has each)"
    error = SendUnavailable(why) if refused is None else SendRefused(why)
    error.results = results
    return error


class StoreUnavailable(Unavailable):
    """The store does not answer; messages are given back until it does."""


class MissingExtra(RedriveError):
    """A library that comes with an extra is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        from redrive.extras import install  # reads metadata, which only who lacks something needs

        self.extra = extra
        super().__init__(f"{what} needs an extra: {install(*extra.split(','))}")


class HandlerError(RedriveError):
    """Raised by a handler to say what kind of failure this is."""

    category = Category.TRANSIENT
    retryable = True

    def __init__(self, message: str = "", *, code: str | None = None, category: Category | None = None) -> None:
        super().__init__(message)
        self.code = code
        if category is not None:
            self.category = category


class NotNow(RedriveError):
    """Raised by a handler that cannot begin now, for which its message is not to blame: it is given back for the pause,
    and no attempt is counted."""

    def __init__(self, message: str = "", *, pause: timedelta = timedelta()) -> None:
        super().__init__(message)
        self.pause = pause


class Failed(RedriveError):
    """Raised by a batch handler: the messages at these places of its list have failed, all others are done.

        raise Failed({2: error, 7: Permanent("no such customer")})

    Each fails by itself, with its own error. None at all means that all are done.
    """

    def __init__(self, errors: Mapping[int, BaseException]) -> None:
        self.errors = _errors_by_place(errors)
        first = next((f": [{place}] {error!r}" for place, error in self.errors.items()), "")
        super().__init__(f"{len(self.errors)} messages of the batch failed{first}")


def _errors_by_place(errors: Mapping[int, BaseException]) -> dict[int, BaseException]:
    help = "Failed takes the error of each message that failed, by its place in the list: Failed({2: error})"
    if not isinstance(errors, Mapping):
        raise WrongOutcomes(f"{help}, and not {errors!r}")
    for place, error in errors.items():
        if not isinstance(place, int) or isinstance(place, bool):
            raise WrongOutcomes(f"{help}, and not of place {place!r}")
        if not isinstance(error, BaseException):
            raise WrongOutcomes(f"{help}. What it was given for place {place} is no exception: {error!r}")
    return dict(errors)


class Permanent(HandlerError):
    """Do not try again: bury it now."""

    category = Category.PERMANENT
    retryable = False


class Transient(HandlerError):
    """Try again, as the policy says."""


def nearest(name: str, known: Iterable[str]) -> str:
    """`: did you mean 'x'?`, or what there is, or nothing at all."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f": did you mean {close[0]!r}?"
    return f": there is {', '.join(names)}" if 0 < len(names) <= 12 else ""
