"""Every setting of the core, with its default, the values it takes and what it is for.

A system has a section of its own: a Struct of the same kind, which its descriptor names (systems/base.py). `keys` has
them all.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Struct, field
from msgspec.structs import fields, replace

from redrive.config.durations import spoken
from redrive.forensics.secrets import MASK, hidden_url
from redrive.systems.discover import refuse, sections

MIB = 1 << 20
TICK = timedelta(milliseconds=1)
"""The least that a duration can be where none makes no sense."""
S = TypeVar("S", bound=Struct)


class About(Struct, frozen=True):
    """What a setting is for, in one line, and the bounds of its values (of a text: of its length)."""

    text: str
    least: int | timedelta | None = None
    most: int | timedelta | None = None
    choices: tuple[str, ...] = ()
    is_size: bool = False
    is_secret: bool = False  # URLs with keys in them: shown without
    is_url: bool = False


_TRANSPORT = About(
    "The URL of that transport; name as many as you need, `default` serves all others", least=1, is_url=True
)


class Redaction(Struct, frozen=True, kw_only=True):
    """What counts as a secret where letters are shown."""

    defaults: Annotated[bool, About("Mask the secrets that Redrive knows by itself")] = True
    keys: Annotated[tuple[str, ...], About("More keys whose values are masked")] = ()
    patterns: Annotated[tuple[str, ...], About("Regular expressions of more texts that are masked")] = ()


class Admin(Struct, frozen=True, kw_only=True):
    """Where the API and the console answer."""

    host: Annotated[str, About("The address that `redrive up` listens on", least=1)] = "127.0.0.1"
    port: Annotated[int, About("Its port; 0 takes a free one", least=0, most=65_535)] = 8321
    tls_cert: Annotated[str | None, About("The certificate, with those that sign it, as PEM: it answers HTTPS", 1)] = (
        None
    )
    tls_key: Annotated[str | None, About("The key of that certificate, as PEM without a password", 1)] = None
    connections: Annotated[
        int, About("So many connections at once; past that, the one idle for longest is closed", least=1)
    ] = 1000
    header_timeout: Annotated[timedelta, About("How long a client may take to send its headers", least=TICK)] = (
        timedelta(seconds=10)
    )
    body_timeout: Annotated[
        timedelta, About("How long a client may take to send its body, or read nothing of its answer", least=TICK)
    ] = timedelta(minutes=1)
    idle_timeout: Annotated[timedelta, About("How long a connection is kept for the next request", least=TICK)] = (
        timedelta(seconds=30)
    )
    costly: Annotated[
        int, About("So many costly questions are answered at once (texts, plans, exports, more than 30 days)", least=1)
    ] = 32
    costly_per_login: Annotated[int, About("The same of one token or person", least=1)] = 8
    trace_url: Annotated[
        str | None,
        About("Where a trace is shown, for links from letters: `https://traces.example.com/{trace_id}`", least=1),
    ] = None


class Collect(Struct, frozen=True, kw_only=True):
    """What `redrive collect` believes."""

    sources: Annotated[
        tuple[str, ...], About("The sources that a dead record may name as its own, such as `orders.*`")
    ] = ()


class Lineage(Struct, frozen=True, kw_only=True):
    """How a message that was sent back proves it."""

    key: Annotated[
        str,
        About("Signs what is sent back, alike in every process; empty: a key that the store keeps", is_secret=True),
    ] = ""


class Oidc(Struct, frozen=True, kw_only=True):
    """Who signs people in, and what their claims mean. Without an issuer there are tokens only."""

    issuer: Annotated[str | None, About("The address of the identity provider, as its tokens name it (`iss`)", 1)] = (
        None
    )
    audience: Annotated[str, About("Whom access tokens have to be for (`aud`)", least=1)] = "redrive"
    client_id: Annotated[str | None, About("The client that the console signs in as; without it, nobody there", 1)] = (
        None
    )
    client_secret: Annotated[
        str | None, About("The secret of that client; none if it is a public one", 1, is_secret=True)
    ] = None
    cli_client_id: Annotated[str | None, About("The public client of the command line, for the device flow", 1)] = None
    scopes: Annotated[tuple[str, ...], About("What is asked for at a login")] = ("openid", "profile", "email")
    algorithms: Annotated[tuple[str, ...], About("How tokens may be signed; with a public key only")] = (
        "RS256",
        "PS256",
        "ES256",
        "EdDSA",
    )
    leeway: Annotated[
        timedelta, About("How far the clocks may be apart", least=timedelta(), most=timedelta(minutes=5))
    ] = timedelta(seconds=30)
    role_claim: Annotated[
        str, About("The claim with roles or groups; a dot goes into it, as in `realm_access.roles`", least=1)
    ] = "roles"
    roles: Annotated[tuple[str, ...], About("Which value of it is which role; the highest one counts")] = (
        "redrive-admin=admin",
        "redrive-operator=operator",
        "redrive-viewer=viewer",
    )
    unmask: Annotated[tuple[str, ...], About("Values of it that let somebody unmask a letter")] = ("redrive-unmask",)
    sources_claim: Annotated[
        str | None, About("The claim with the sources that somebody reaches; `*` is all, none at all is refused", 1)
    ] = None
    tenants_claim: Annotated[str | None, About("The same of tenants", 1)] = None
    systems_claim: Annotated[str | None, About("The same of systems", 1)] = None
    name_claim: Annotated[str, About("The claim with the name that is shown", least=1)] = "preferred_username"
    console: Annotated[
        str | None, About("The address of the console as browsers have it; needed behind a proxy", least=1)
    ] = None
    session: Annotated[timedelta, About("How long a login at the console lasts", least=timedelta(minutes=1))] = (
        timedelta(hours=12)
    )
    recheck: Annotated[timedelta, About("How soon the console notices that somebody's role is taken", least=TICK)] = (
        timedelta(minutes=5)
    )


class Access(Struct, frozen=True, kw_only=True):
    """What is written down of acts, and which of them wait for a second person."""

    trail_key: Annotated[
        str | None,
        About("What signs checkpoints of the trail; without it a key in the store", 16, is_secret=True),
    ] = None
    approve_over: Annotated[
        int | None, About("An act on more letters than this waits until a second person approves it", least=0)
    ] = None
    approve_within: Annotated[timedelta, About("How long such an act waits before it expires", least=TICK)] = timedelta(
        hours=24
    )
    oidc: Oidc = Oidc()


class Logs(Struct, frozen=True, kw_only=True):
    """What is logged, and how."""

    level: Annotated[
        str, About("The least important line that is logged", choices=("debug", "info", "warning", "error"))
    ] = "info"
    format: Annotated[
        str, About("For people or for programs; auto looks for a terminal", choices=("auto", "console", "json"))
    ] = "auto"


class Retention(Struct, frozen=True, kw_only=True):
    """How long letters are kept."""

    ttl: Annotated[timedelta | None, About("Letters older than this are pruned", least=TICK)] = None
    max_letters: Annotated[int | None, About("Past this many, the oldest letters are pruned", least=1)] = None
    export: Annotated[str | None, About("The file that letters are written to before they are pruned", 1)] = None


class Series(Struct, frozen=True, kw_only=True):
    """What happened over time: how long it is kept, in ever longer steps."""

    minutes: Annotated[timedelta, About("How long counts by minute are kept", least=TICK)] = timedelta(days=2)
    hours: Annotated[timedelta, About("How long counts by hour are kept", least=TICK)] = timedelta(days=60)
    days: Annotated[timedelta, About("How long counts by day are kept", least=TICK)] = timedelta(days=730)


class Upkeep(Struct, frozen=True, kw_only=True):
    """The work in the background: automatic retries, rescue, pruning."""

    interval: Annotated[timedelta, About("How often due letters are looked for", least=TICK)] = timedelta(seconds=1)
    lease: Annotated[timedelta, About("How long one processor may hold a letter", least=TICK)] = timedelta(minutes=1)
    parallel: Annotated[int, About("How many letters are sent back at once", least=1, most=10_000)] = 100
    prune_every: Annotated[timedelta, About("How often retention is applied", least=TICK)] = timedelta(minutes=1)


class Alerts(Struct, frozen=True, kw_only=True):
    """Alerts: who gets them, how, and when."""

    urls: Annotated[
        tuple[str, ...],
        About(
            "Who is told: alertmanager+http://…, pagerduty://KEY, webhook+https://…, any URL of apprise", is_secret=True
        ),
    ] = ()
    severity: Annotated[
        str, About("The least severity that is told and kept", choices=("info", "warning", "error", "critical"))
    ] = "warning"
    repeat: Annotated[timedelta, About("How long until an open incident is told again", least=TICK)] = timedelta(
        hours=4
    )
    interval: Annotated[timedelta, About("How often the rules are looked at", least=TICK)] = timedelta(seconds=10)
    resolve_after: Annotated[timedelta, About("How long a condition is gone before it resolves", least=TICK)] = (
        timedelta(minutes=2)
    )
    window: Annotated[timedelta, About("The span of time that rates are counted over", least=TICK)] = timedelta(
        minutes=5
    )
    grace: Annotated[timedelta, About("How long a stopping process goes on telling")] = timedelta(seconds=5)
    console: Annotated[str | None, About("The address of the console, for links in alerts", least=1)] = None
    exhausted: Annotated[int | None, About("So many exhausted letters of one group are an alert", least=1)] = 1
    new_group: Annotated[bool, About("Whether a cause that was never seen before is an alert")] = True
    growth: Annotated[int | None, About("So many new letters of one group in the window are an alert", least=1)] = 100
    success: Annotated[
        int | None, About("Fewer retries than this that succeed, in percent, are an alert", least=1, most=100)
    ] = 50
    success_of: Annotated[int, About("Of how many retries in the window, at least", least=1)] = 20
    utilisation: Annotated[int | None, About("A queue that is so full, in percent, is an alert", least=1, most=100)] = (
        80
    )
    backend_down: Annotated[timedelta | None, About("A backend that is away for so long is an alert", least=TICK)] = (
        timedelta(minutes=1)
    )
    breaker: Annotated[bool, About("Whether an open circuit breaker is an alert")] = True
    storm: Annotated[bool, About("Whether a source that the storm guard has paused is an alert")] = True
    replay_paused: Annotated[bool, About("Whether a replay that paused by itself is an alert")] = True
    regressed: Annotated[bool, About("Whether a fixed group that letters die of again is an alert")] = True
    deployed: Annotated[
        bool, About("Whether a group is an alert when its fix runs everywhere and its letters wait")
    ] = True


class Processes(Struct, frozen=True, kw_only=True):
    """What `redrive run --processes` does when one of them dies."""

    pause: Annotated[
        timedelta, About("How long until a process that died is started again; doubles with each death", least=TICK)
    ] = timedelta(milliseconds=500)
    longest_pause: Annotated[timedelta, About("The longest such pause", least=TICK)] = timedelta(seconds=30)
    healthy: Annotated[timedelta, About("Who lived this long starts with the shortest pause again", least=TICK)] = (
        timedelta(minutes=1)
    )
    deaths: Annotated[
        int | None, About("So many deaths of one process in `processes.within` end them all", least=1)
    ] = 10
    within: Annotated[timedelta, About("The span of time that deaths are counted over", least=TICK)] = timedelta(
        minutes=10
    )


class Settings(Struct, frozen=True, kw_only=True):
    """All settings, valid: `redrive.config.load` makes them from a file and the environment."""

    store: Annotated[str, About("The URL of the database that keeps letters", least=1, is_url=True)] = (
        "sqlite:///redrive.db"
    )
    transports: Annotated[dict[str, str], _TRANSPORT] = field(
        default_factory=lambda: {"default": "sqlite:///redrive.db"}
    )
    server: Annotated[
        str | None,
        About("A server that commands ask instead of a database, such as https://redrive.example.org", least=1),
    ] = None
    ca_file: Annotated[
        str | None, About("The certificate, as PEM, of the authority that signed that server's", least=1)
    ] = None
    worker: Annotated[
        str,
        About(
            "The name of this process in failures, and to brokers that know workers by name; empty: host:pid, no name"
        ),
    ] = ""
    version: Annotated[
        str, About("The version of your own code, noted in failures; empty: as its package or git says")
    ] = ""
    concurrency: Annotated[
        int, About("How many messages of a source a worker handles at once", least=1, most=10_000)
    ] = 10
    batch: Annotated[int, About("How many messages are received and settled at once", least=1, most=10_000)] = 100
    lease: Annotated[timedelta, About("How long a message is ours before another worker may have it", least=TICK)] = (
        timedelta(minutes=1)
    )
    grace: Annotated[timedelta, About("How long a stopping worker lets its handlers finish")] = timedelta(seconds=25)
    timeout: Annotated[timedelta, About("How long one attempt may take", least=TICK)] = timedelta(minutes=5)
    body_limit: Annotated[int, About("The largest body that is accepted", least=1, is_size=True)] = 16 * MIB
    redact: Redaction = Redaction()
    access: Access = Access()
    admin: Admin = Admin()
    collect: Collect = Collect()
    lineage: Lineage = Lineage()
    logs: Logs = Logs()
    retention: Retention = Retention()
    series: Series = Series()
    upkeep: Upkeep = Upkeep()
    alerts: Alerts = Alerts()
    processes: Processes = Processes()
    sections: tuple[Struct, ...] = ()  # those of systems that are not their defaults; `of` finds them by their type

    @property
    def worker_name(self) -> str:
        """The name of this process: as set, or its host and its id."""
        return self.worker or f"{socket.gethostname()}:{os.getpid()}"

    def of(self, kind: type[S]) -> S:
        """The settings of a system, by their type: `settings.of(OrderSettings)`."""
        return next((section for section in self.sections if type(section) is kind), None) or kind()

    def having(self, section: Struct) -> Settings:
        """These settings with that section in the place of the one that has its type."""
        others = (other for other in self.sections if type(other) is not type(section))
        return replace(self, sections=(*others, section))


class Key(Struct, frozen=True):
    """One setting, as data: for the loader, for docs and for `redrive doctor`."""

    path: str  # `admin.port`
    kind: type
    default: Any
    about: About
    optional: bool = False

    @property
    def environ(self) -> str:
        """The name it has in the environment."""
        return "REDRIVE_" + self.path.upper().replace(".", "_").replace("-", "_")

    @property
    def takes(self) -> str:
        """The values it takes, in words."""
        if self.about.choices:
            return f"one of {', '.join(self.about.choices)}"
        noun = "a size such as '16MiB', or a number of bytes" if self.about.is_size else _NOUNS[self.kind]
        if self.about.is_url:
            return "a URL such as 'sqlite:///redrive.db'"
        return f"{noun}{self._range()}{', or none' if self.optional else ''}"

    def _range(self) -> str:
        least, most = self.about.least, self.about.most
        if self.kind is str or least is None:
            return ""
        return f", {written(least)} or more" if most is None else f" from {written(least)} to {written(most)}"


_NOUNS: dict[type, str] = {
    str: "a text",
    int: "a whole number",
    bool: "true or false",
    timedelta: "a duration such as '250ms', '5s' or '1m30s'",
    tuple: "a list of texts (in the environment: with commas between them)",
}


class Described(Struct, frozen=True):
    """One setting as it stands: everything in words."""

    path: str
    environ: str
    value: str
    source: str  # `default`, `environment`, or the file
    default: str
    takes: str
    about: str


@cache
def keys() -> tuple[Key, ...]:
    """Every setting: the core's in the order in which they stand above, then those of each system."""
    own = [key for name, kind in system_sections().items() for key in _keys(kind, f"{name}.")]
    return (*_keys(Settings, ""), *own)


@cache
def system_sections() -> dict[str, type[Struct]]:
    """The sections of the systems by their names; one that is named as a setting of the core is left out."""
    found = dict(sections())
    for name in found.keys() & set(Settings.__struct_fields__):
        refuse(name, "a setting of Redrive itself has that name")
        del found[name]
    return found


def transport_key(name: str) -> Key:
    """The setting of the transport with that name."""
    return Key(f"transports.{name}", str, None, _TRANSPORT)


def describe(settings: Settings, sources: Mapping[str, str]) -> tuple[Described, ...]:
    """Every setting with its value and where it came from. Redact before showing: only URLs of notifiers are masked."""
    extra = (transport_key(name) for name in settings.transports if name != "default")
    return tuple(_described(key, settings, sources) for key in (*keys(), *extra))


def written(value: object) -> str:
    """A value as it is written in a file or the environment."""
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case timedelta():
            return spoken(value)
        case tuple():
            return ",".join(map(str, value))
    return str(value)


def value_at(settings: Settings, path: str) -> Any:
    """The value of `admin.port` or `transports.default`."""
    section, _, name = path.partition(".")
    if section in system_sections():
        return getattr(settings.of(system_sections()[section]), name)
    value: Any = settings
    for part in path.split("."):
        value = value[part] if isinstance(value, dict) else getattr(value, part)
    return value


def _described(key: Key, settings: Settings, sources: Mapping[str, str]) -> Described:
    value, source = value_at(settings, key.path), sources.get(key.path, "default")
    if key.about.is_secret:
        value = tuple(map(hidden_url, value)) if isinstance(value, tuple) else value and MASK
    return Described(key.path, key.environ, written(value), source, written(key.default), key.takes, key.about.text)


def _keys(struct: type[Struct], prefix: str) -> Iterator[Key]:
    hints = get_type_hints(struct, include_extras=True)
    defaults = struct()
    for item in fields(struct):
        hint, default = hints[item.name], getattr(defaults, item.name)
        if item.name == "sections":
            continue
        if isinstance(default, dict):
            yield from (Key(f"{item.name}.{name}", str, value, _TRANSPORT) for name, value in default.items())
        elif isinstance(default, Struct):
            yield from _keys(type(default), f"{prefix}{item.name}.")
        else:
            yield _key(f"{prefix}{item.name}", hint, default)


def _key(path: str, hint: Any, default: Any) -> Key:
    kind, about = get_args(hint)[:2]
    optional = get_origin(kind) is UnionType
    kind = get_args(kind)[0] if optional else kind
    return Key(path, get_origin(kind) or kind, default, about, optional)
