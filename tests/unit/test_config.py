"""Settings come from a file and the environment, and whatever is wrong is named."""

from __future__ import annotations

import builtins
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive.config.load import Loaded, load, read
from redrive.config.settings import Settings, describe, keys
from redrive.errors import ConfigError, MissingExtra


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def toml(text: str) -> Settings:
    Path("redrive.toml").write_text(text)
    return load(environ={})


def refused(text: str = "", name: str = "redrive.toml", **environ: str) -> str:
    """The message of the error that this configuration is."""
    Path(name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(environ=environ)
    return str(caught.value)


def test_without_anything_there_are_defaults() -> None:
    settings = load(environ={})
    assert settings == Settings()
    assert settings.transports == {"default": "sqlite:///redrive.db"}
    assert settings.body_limit == 16 * 1024 * 1024
    assert (settings.lease, settings.grace) == (timedelta(seconds=60), timedelta(seconds=25))
    assert settings.retention.ttl is None


def test_every_kind_of_value_from_toml() -> None:
    settings = toml(
        """
        store = "sqlite:///letters.db"
        concurrency = 5
        lease = "1m30s"
        body_limit = "500KB"
        [transports]
        orders-2 = "memory://"
        [redact]
        defaults = false
        keys = ["patient"]
        [logs]
        level = "debug"
        [retention]
        ttl = "30d"
        max_letters = 1000
        """
    )
    assert settings.store == "sqlite:///letters.db"
    assert settings.concurrency == 5
    assert settings.lease == timedelta(seconds=90)
    assert settings.body_limit == 500_000
    assert settings.transports == {"default": "sqlite:///letters.db", "orders-2": "memory://"}
    assert settings.redact.defaults is False
    assert settings.redact.keys == ("patient",)
    assert settings.logs.level == "debug"
    assert (settings.retention.ttl, settings.retention.max_letters) == (timedelta(days=30), 1000)
    assert settings.admin == Settings().admin


def test_yaml() -> None:
    Path("redrive.yaml").write_text("admin:\n  port: 9000\nlogs:\nretention:\n  ttl: null\n")
    assert load(environ={}).admin.port == 9000


def test_yaml_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_yaml(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "yaml":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_yaml)
    Path("redrive.yml").write_text("store: x")
    with pytest.raises(MissingExtra, match=r"\[yaml\]"):
        load(environ={})


def test_pyproject_counts_only_with_a_table_of_ours() -> None:
    Path("pyproject.toml").write_text("[tool.other]\nstore = 5\n")
    assert load(environ={}) == Settings()
    Path("pyproject.toml").write_text("[tool.redrive]\nbatch = 7\n[tool.redrive.admin]\nport = 1\n")
    assert (load(environ={}).batch, load(environ={}).admin.port) == (7, 1)


def test_which_file_is_read() -> None:
    for number, name in enumerate(("pyproject.toml", "redrive.yml", "redrive.yaml", "redrive.toml"), start=1):
        table = "[tool.redrive]\n" if name == "pyproject.toml" else ""
        Path(name).write_text(f"{table}batch = {number}" if name.endswith("toml") else f"batch: {number}")
        assert load(environ={}).batch == number
    Path("other.toml").write_text("batch = 10")
    Path("given.toml").write_text("batch = 11")
    assert load(environ={"REDRIVE_CONFIG": "other.toml"}).batch == 10
    assert load(Path("given.toml"), environ={"REDRIVE_CONFIG": "other.toml"}).batch == 11


def test_the_environment_overrides_the_file() -> None:
    Path("redrive.toml").write_text('batch = 1\nconcurrency = 2\n[transports]\nmy-queue = "redis://a"')
    settings = load(
        environ={
            "REDRIVE_BATCH": "7",
            "REDRIVE_STORE": "sqlite:///e.db",
            "REDRIVE_ADMIN_PORT": "9000",
            "REDRIVE_UPKEEP_INTERVAL": "5s",
            "REDRIVE_BODY_LIMIT": "1024",
            "REDRIVE_TRANSPORTS_DEFAULT": "memory://",
            "REDRIVE_TRANSPORTS_MY_QUEUE": "redis://b",
            "REDRIVE_TRANSPORTS_NEW": "amqp://c",
            "REDRIVE_REDACT_KEYS": "patient, case",
            "REDRIVE_REDACT_PATTERNS": '["A{1,2}"]',
            "REDRIVE_REDACT_DEFAULTS": "no",
            "REDRIVE_RETENTION_TTL": "none",
            "REDRIVE_VERSION": "",
            "PATH": "/bin",
        }
    )
    assert (settings.batch, settings.concurrency, settings.store) == (7, 2, "sqlite:///e.db")
    assert (settings.admin.port, settings.upkeep.interval) == (9000, timedelta(seconds=5))
    assert settings.body_limit == 1024
    assert settings.transports == {"default": "memory://", "my-queue": "redis://b", "new": "amqp://c"}
    assert (settings.redact.keys, settings.redact.patterns) == (("patient", "case"), ("A{1,2}",))
    assert settings.redact.defaults is False
    assert settings.retention.ttl is None


def test_variables_that_are_no_settings_are_left_alone() -> None:
    others = ("TOKEN", "SERVERS", "SERVERS_CACHE", "BENCH_ONLY", "FAULT", "FAULT_AT")
    assert load(environ={f"REDRIVE_{name}": "x" for name in others}) == Settings()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("concurency = 5", ["'concurency'", "redrive.toml", "'concurrency'"]),
        ("[admin]\nprot = 5", ["'admin.prot'", "redrive.toml", "'admin.port'"]),
        ("[amdin]\nport = 5", ["'amdin.port'", "'admin.port'"]),
        ("port = 5", ["'port'", "'admin.port'"]),
        ("[nonsense]", ["'nonsense'", "redrive.toml"]),
    ],
)
def test_an_unknown_key_in_a_file_is_named_with_the_nearest(text: str, parts: list[str]) -> None:
    message = refused(text)
    assert all(part in message for part in parts), message


def test_an_unknown_variable_is_named_with_the_nearest() -> None:
    message = refused(REDRIVE_ADMIN_PROT="5")
    assert "REDRIVE_ADMIN_PROT in the environment" in message
    assert "REDRIVE_ADMIN_PORT" in message


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("concurrency = 'ten'", ["concurrency", "'ten'", "redrive.toml", "whole number from 1 to 10000"]),
        ("concurrency = 0", ["concurrency = 0", "from 1 to 10000"]),
        ("concurrency = 10001", ["10001"]),
        ("concurrency = true", ["True", "whole number"]),
        ("concurrency = 1.5", ["1.5"]),
        ("store = 5", ["store = 5", "a URL such as"]),
        ("store = ''", ["store = ''"]),
        ("store = {url = 'x'}", ["store = {", "a URL such as"]),
        ("lease = 60", ["lease = 60", "duration such as"]),
        ("lease = '0s'", ["lease = '0s'", "1ms or more"]),
        ("lease = '99999999999999d'", ["lease"]),
        ("body_limit = '16 parsecs'", ["'16 parsecs'", "16MiB"]),
        ("admin = 5", ["admin = 5", "table", "admin.port"]),
        ("[admin]\nport = 70000", ["admin.port = 70000", "from 0 to 65535"]),
        ("[logs]\nlevel = 'loud'", ["logs.level", "'loud'", "one of debug, info, warning, error"]),
        ("[redact]\nkeys = 'password'", ["redact.keys", "list of texts"]),
        ("[redact]\nkeys = [1]", ["redact.keys"]),
        ("[redact]\ndefaults = 'sure'", ["redact.defaults", "true or false"]),
        ("[redact]\npatterns = ['(']", ["redact.patterns", "redrive.toml", "'('"]),
        ("[retention]\nmax_letters = 0", ["retention.max_letters", "1 or more, or none"]),
        ("[transports]\n'Bad Name' = 'x'", ["Bad Name", "a-z"]),
        ("[transports]\ndefault = ''", ["transports.default"]),
        ("[transports]\ndefault = 5", ["transports.default", "a URL such as"]),
    ],
)
def test_a_wrong_value_is_named_with_what_the_key_takes(text: str, parts: list[str]) -> None:
    message = refused(text)
    assert all(part in message for part in parts), message


def test_a_wrong_variable_is_named_with_what_it_takes() -> None:
    message = refused(REDRIVE_ADMIN_PORT="many")
    assert message == (
        "admin.port = 'many' in the environment (REDRIVE_ADMIN_PORT): it takes a whole number from 0 to 65535"
    )


def test_an_error_does_not_tell_a_password() -> None:
    assert "hunter2" not in refused("store = ['postgres://ann:hunter2@db/x']")


def test_a_file_that_cannot_be_read_is_named() -> None:
    assert "redrive.toml cannot be read" in refused("store = ")
    Path("redrive.toml").unlink()
    assert "redrive.yaml cannot be read" in refused("a: [", "redrive.yaml")
    assert "redrive.yaml is a list" in refused("- a", "redrive.yaml")


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml, which REDRIVE_CONFIG names"):
        load(environ={"REDRIVE_CONFIG": "missing.toml"})
    with pytest.raises(ConfigError, match=r"missing\.toml"):
        load(Path("missing.toml"), environ={})
    Path("redrive.ini").write_text("x")
    with pytest.raises(ConfigError, match=r"\.toml, \.yaml or \.yml"):
        load(Path("redrive.ini"), environ={})


@pytest.mark.parametrize(
    ("written", "size"), [("16MiB", 1 << 24), ("1.5kib", 1536), ("2 GB", 2 * 10**9), ("7b", 7), ("12", 12)]
)
def test_sizes(written: str, size: int) -> None:
    assert load(environ={"REDRIVE_BODY_LIMIT": written}).body_limit == size


def test_the_worker_has_a_name() -> None:
    assert load(environ={"REDRIVE_WORKER": "w1"}).worker_name == "w1"
    host, pid = load(environ={}).worker_name.rsplit(":", 1)
    assert host
    assert pid.isdigit()


def test_where_each_value_came_from() -> None:
    Path("redrive.toml").write_text("batch = 1\nconcurrency = 2")
    loaded = read(environ={"REDRIVE_BATCH": "7", "REDRIVE_TRANSPORTS_EU": "redis://x"})
    assert isinstance(loaded, Loaded)
    lines = {line.path: line for line in loaded.describe()}
    assert (lines["batch"].value, lines["batch"].source, lines["batch"].default) == ("7", "environment", "100")
    assert lines["concurrency"].source == "redrive.toml"
    assert lines["admin.port"].source == "default"
    assert (lines["transports.eu"].value, lines["transports.eu"].source) == ("redis://x", "environment")
    assert loaded.file == Path("redrive.toml")


def test_every_key_explains_itself() -> None:
    paths = [key.path for key in keys()]
    assert len(paths) == len(set(paths)) == len({key.environ for key in keys()})
    assert all(key.about.text and key.takes for key in keys())
    assert "upkeep.prune_every" in paths
    assert next(key.environ for key in keys() if key.path == "admin.port") == "REDRIVE_ADMIN_PORT"


def test_what_describe_writes_can_be_read_back() -> None:
    settings = toml('lease = "90s"\n[redact]\nkeys = ["a", "b"]\n[retention]\nttl = "1d"')
    environ = {line.environ: line.value for line in describe(settings, {})}
    Path("redrive.toml").unlink()
    assert load(environ=environ) == settings


def test_who_names_only_the_store_has_named_the_queue() -> None:
    """Embedded means one file."""
    both = load(environ={"REDRIVE_STORE": "sqlite:///elsewhere.db"})
    assert both.transports == {"default": "sqlite:///elsewhere.db"}
    apart = load(environ={"REDRIVE_STORE": "sqlite:///a.db", "REDRIVE_TRANSPORTS_DEFAULT": "sqlite:///b.db"})
    assert (apart.store, apart.transports) == ("sqlite:///a.db", {"default": "sqlite:///b.db"})
    assert load(environ={"REDRIVE_STORE": "memory://"}).transports == {"default": "sqlite:///redrive.db"}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[transports]\ndefualt = 'redis://h'", ["transports.defualt in redrive.toml", "'transports.default'?"]),
        ("[transports]\nurl = 'redis://h'", ["transports.url in redrive.toml", "'transports.default'?"]),
        ("[transports.orders]\nurl = 'redis://h'", ["transports.orders.url", "one URL, as in orders = 'redis://"]),
        ("[transports]\nMine = 'redis://h'", ["transports.Mine in redrive.toml", "a-z"]),
        ("[transports]\ndefault = 'reddis://h'", ["transports.default in redrive.toml", "did you mean 'redis'?"]),
        ("[transports]\ngroup = 'billing'", ["transports.group in redrive.toml", "'billing' is no URL of a transport"]),
        ("[transports]\norders = ['redis://h']", ["transports.orders = ['redis://h'] in redrive.toml", "a URL"]),
        ("store = 'postgre://h'", ["store in redrive.toml: no store speaks 'postgre'"]),
        ("store = 'kafka://h'", ["store in redrive.toml: no store speaks 'kafka'"]),
        ("transports = 'redis://h'", ["transports = 'redis://h' in redrive.toml", "a table, with transports.default"]),
        ("[[transports]]\nx = 1", ["transports = [{'x': 1}] in redrive.toml"]),
    ],
)
def test_what_is_wrong_with_a_transport_or_the_store_is_named_when_it_is_read(text: str, parts: list[str]) -> None:
    said = refused(text)
    assert [part for part in parts if part not in said] == [], said


def test_the_same_in_the_environment() -> None:
    assert "REDRIVE_TRANSPORTS_DEFUALT in the environment: unknown key" in refused(
        REDRIVE_TRANSPORTS_DEFUALT="redis://h"
    )
    said = refused(REDRIVE_TRANSPORTS_DEFAULT="kafak://h")
    assert "(REDRIVE_TRANSPORTS_DEFAULT): no transport speaks 'kafak': did you mean 'kafka'?" in said


def test_a_password_is_not_repeated() -> None:
    assert "hunter2" not in refused("store = 'amqp:/ann:hunter2@host'") + refused("store = 'http://ann:hunter2@host'")


def test_a_section_in_a_section(tmp_path: Path) -> None:
    file = tmp_path / "redrive.toml"
    file.write_text('[access]\napprove_over = 5\n[access.oidc]\nissuer = "https://id.example.com"\n')
    loaded = read(file, {"REDRIVE_ACCESS_OIDC_AUDIENCE": "dead-letters"})
    oidc = loaded.settings.access.oidc
    assert (loaded.settings.access.approve_over, oidc.issuer, oidc.audience) == (
        5,
        "https://id.example.com",
        "dead-letters",
    )
    assert loaded.sources["access.oidc.issuer"] == str(file)
