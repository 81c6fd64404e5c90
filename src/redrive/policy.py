"""Policy: how often, how long between, what is permanent, how long a letter lives."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from msgspec import Struct

from redrive.config.durations import Duration, duration
from redrive.errors import ConfigError, nearest
from redrive.flow.backoff import Backoff, exponential
from redrive.model import BatchFailure, Category, Holds, OnDeath

_DEFAULT_BACKOFF = exponential("1s", cap="60s", jitter=0.25)


class Rule(Struct, frozen=True):
    """What one policy says of one category."""

    attempts: int
    backoff: Backoff
    retry: bool | None  # None: as the failure's own `retryable` says


class Again(Struct, frozen=True):
    """Automatic retries of a letter, after it was buried."""

    attempts: int
    backoff: Backoff


class HoldKey:
    """What is behind a dead message of its key is set aside, and follows it. Its bounds:

    most      letters that are set aside behind one of a key; what comes then stays in the broker, which is said
    keys      keys of a source that are held at a time; a message that would be the next one stays in the broker
    longest   how long a dead message holds its key; then those behind it follow without it, which is said
    """

    __slots__ = ("keys", "longest", "most")

    def __init__(self, *, most: int = 1000, keys: int = 10_000, longest: Duration = "7d") -> None:
        for name, number in (("most", most), ("keys", keys)):
            if not _is_whole(number) or number < 1:
                raise ConfigError(f"HoldKey({name}={number!r}): it is a number of 1 or more")
        self.most = most
        self.keys = keys
        self.longest = positive("HoldKey(longest)", longest)

    def __repr__(self) -> str:
        return f"HoldKey(most={self.most}, keys={self.keys}, longest={self.longest!r})"


class Storm:
    """When a source is paused instead of emptied into the dead letters: it buries too much of what it finishes.

    share      more than this of what all its workers finish is buried: 0.5 is half
    over       within this time
    at_least   so many have to be finished within it before anything is concluded
    probes     so many messages in a row have to succeed, one at a time, before it goes on by itself
    """

    __slots__ = ("at_least", "over", "probes", "share")

    def __init__(self, share: float = 0.5, over: Duration = "1m", at_least: int = 100, *, probes: int = 3) -> None:
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
            raise ConfigError(f"Storm(share={share!r}): it is more than 0 and less than 1, such as 0.5 for half")
        for name, number in (("at_least", at_least), ("probes", probes)):
            if not _is_whole(number) or number < 1:
                raise ConfigError(f"Storm({name}={number!r}): it is a number of messages, 1 or more")
        self.share = float(share)
        self.over = positive("Storm(over)", over)
        self.at_least = at_least
        self.probes = probes

    def __repr__(self) -> str:
        return f"Storm(share={self.share}, over={self.over!r}, at_least={self.at_least}, probes={self.probes})"


class Policy:
    """What to do with failures. Meant to be made once and shared.

    attempts    how often a message is tried before it is buried, crashes of its worker included
    backoff     the delay between attempts
    timeout     how long one attempt may take; None takes the setting `timeout`
    ttl         how long a letter is kept; None keeps it
    categories  another Policy for failures of one category: its attempts and backoff are used for them, and
                `attempts=1` buries at once. A category named here is retried even where it would not be by itself
    again       automatic retries of the letter: `again=5` with the same backoff, or `Again(5, linear("5m"))`. In the
                policy of a category None means as for all others, or none where that category is buried at once
    holds       where the transport keeps order (Kafka): what waits behind a message that is to be retried. Its `key`
                (what None means), its whole `partition`, or `nothing`: it steps aside
    on_death    what becomes of those behind a message that dies, of its key: they `go-on`, or `hold-key` sets them
                aside as letters until it is resolved or archived; `HoldKey(most=500, longest="1d")` with other bounds
    storm       pauses the source over all its workers, and probes it, instead of emptying it into the dead letters:
                `Storm(share=0.5, over="1m", at_least=100)`
    batch_failure   of a batch handler: a batch that fails as a whole is tried again at once in `halves`, or `each`
                message by itself, and only a message that fails alone has failed
    """

    __slots__ = (
        "_rules",
        "_says_again",
        "again",
        "attempts",
        "backoff",
        "batch_failure",
        "categories",
        "holds",
        "most_attempts",
        "on_death",
        "storm",
        "timeout",
        "ttl",
    )

    def __init__(
        self,
        attempts: int = 5,
        backoff: Backoff = _DEFAULT_BACKOFF,
        *,
        timeout: Duration | None = None,
        ttl: Duration | None = None,
        categories: Mapping[Category | str, Policy] | None = None,
        again: int | Again | None = None,
        holds: Holds | str | None = None,
        on_death: OnDeath | str | HoldKey = OnDeath.GO_ON,
        storm: Storm | None = None,
        batch_failure: BatchFailure | str = BatchFailure.HALVES,
    ) -> None:
        if not _is_whole(attempts) or attempts < 1:
            raise ConfigError(f"attempts={attempts!r}: a message is tried at least once, so 1 or more")
        self.attempts = attempts
        self.backoff = _checked("backoff", backoff)
        self.timeout = None if timeout is None else positive("timeout", timeout)
        self.ttl = None if ttl is None else positive("ttl", ttl)
        self.holds = None if holds is None else _holds(holds)
        self.on_death = _on_death(on_death)
        self.storm = _storm(storm)
        self.batch_failure = _batch_failure(batch_failure)
        self.categories = {category_named(name): _policy(name, policy) for name, policy in (categories or {}).items()}
        self.again = again if isinstance(again, Again) else Again(0 if again is None else again, backoff)
        self._says_again = again is not None
        if not _is_whole(self.again.attempts) or self.again.attempts < 0:
            raise ConfigError(f"again={again!r}: it is a number of automatic retries, 0 or more")
        _checked("again", self.again.backoff)
        self._rules = {category: self._rule(category) for category in Category}
        # the largest number any category allows: past it, only a crash can explain another delivery
        self.most_attempts = max(rule.attempts for rule in self._rules.values())

    def rule(self, category: Category) -> Rule:
        """The rule for failures of that category."""
        return self._rules[category]

    def _rule(self, category: Category) -> Rule:
        special = self.categories.get(category)
        if special is None:
            return Rule(self.attempts, self.backoff, None)
        return Rule(special.attempts, special.backoff, special.attempts > 1)

    def again_for(self, category: Category) -> Again:
        """The automatic retries of a letter of that category."""
        special = self.categories.get(category)
        if special is None or (special.attempts > 1 and not special._says_again):
            return self.again
        return special.again

    def __repr__(self) -> str:
        return f"Policy(attempts={self.attempts}, backoff={self.backoff!r}, again={self.again.attempts})"


def positive(name: str, value: Duration) -> timedelta:
    """The duration, which has to be longer than 0."""
    try:
        span = duration(value)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None
    if span <= timedelta():
        raise ConfigError(f"{name}={value!r}: it has to be longer than nothing")
    return span


def category_named(name: Category | str) -> Category:
    """The category of that name."""
    try:
        return Category(name)
    except ValueError:
        raise ConfigError(f"unknown category {name!r}{nearest(str(name), map(str, Category))}") from None


def _holds(name: Holds | str) -> Holds:
    try:
        return Holds(name)
    except ValueError:
        raise ConfigError(f"holds={name!r}: it is {', '.join(Holds)}{nearest(str(name), map(str, Holds))}") from None


def _on_death(name: OnDeath | str | HoldKey) -> HoldKey | None:
    """The bounds of what is held; None: nothing is."""
    if isinstance(name, HoldKey):
        return name
    try:
        return HoldKey() if OnDeath(name) is OnDeath.HOLD_KEY else None
    except ValueError:
        known = f"{', '.join(OnDeath)}, or HoldKey(...){nearest(str(name), map(str, OnDeath))}"
        raise ConfigError(f"on_death={name!r}: it is {known}") from None


def _storm(storm: Storm | None) -> Storm | None:
    if storm is None or isinstance(storm, Storm):
        return storm
    raise ConfigError(f'storm={storm!r}: it takes a Storm, such as Storm(share=0.5, over="1m", at_least=100)')


def _batch_failure(name: BatchFailure | str) -> BatchFailure:
    try:
        return BatchFailure(name)
    except ValueError:
        known = f"{', '.join(BatchFailure)}{nearest(str(name), map(str, BatchFailure))}"
        raise ConfigError(f"batch_failure={name!r}: it is {known}") from None


def _checked(name: str, backoff: Backoff) -> Backoff:
    if not callable(getattr(backoff, "delay", None)):
        raise ConfigError(f"{name}={backoff!r}: use never(), immediate(), linear(), exponential() or custom()")
    return backoff


def _policy(category: Category | str, policy: Policy) -> Policy:
    if not isinstance(policy, Policy):
        raise ConfigError(f"categories: {category} takes a Policy, not {policy!r}")
    return policy


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)
