"""What a URL of PostgreSQL means, and what is said of one that means nothing."""

import pytest

from redrive.drivers.postgresql.address import address_of
from redrive.errors import ConfigError


def test_the_options_of_ours_are_taken_out_and_those_of_libpq_stay() -> None:
    address = address_of("postgresql://me:pw%40@db:5433/orders?schema=dead&pool_size=3&timeout=2.5&sslmode=require")
    assert (address.schema, address.pool_size, address.patience) == ("dead", 3, 2.5)
    given = {name: address.parameters[name] for name in ("user", "password", "host", "port", "dbname", "sslmode")}
    assert given == {
        "user": "me",
        "password": "pw@",
        "host": "db",
        "port": "5433",
        "dbname": "orders",
        "sslmode": "require",
    }
    assert not address.parameters.keys() & {"schema", "pool_size", "timeout"}


def test_no_password_is_shown() -> None:
    assert address_of("postgres://me:secret@db/orders").shown == "postgresql://db:5432/orders"


def test_of_several_hosts_the_one_that_takes_writes_is_used() -> None:
    address = address_of("postgresql://a:1,b:2/orders")
    assert address.parameters["target_session_attrs"] == "read-write"
    assert address.shown == "postgresql://a:1,b:2/orders"


def test_a_session_goes_past_pgbouncer() -> None:
    address = address_of("postgresql://bouncer:6432/orders?direct=db:5433")
    assert address.direct is not None
    assert (address.direct["host"], address.direct["port"], address.direct["dbname"]) == ("db", "5433", "orders")
    assert address_of("postgresql://bouncer/orders?direct=off").direct is None
    assert address_of("postgresql://db/orders").direct == address_of("postgresql://db/orders").parameters


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://db/orders", "no PostgreSQL"),
        ("postgresql://db/orders?shema=x", "did you mean 'schema'"),
        ("postgresql://db/orders?sslmod=require", "did you mean 'sslmode'"),
        ("postgresql://db/orders?schema=", "schema=''"),
        ("postgresql://db/orders?schema=Dead; DROP", "schema="),
        ("postgresql://db/orders?schema=pg_dead", "pg_"),
        ("postgresql://db/orders?pool_size=0", "pool_size='0'"),
        ("postgresql://db/orders?pool_size=1.5", "pool_size='1.5'"),
        ("postgresql://db/orders?timeout=soon", "timeout='soon'"),
        ("postgresql://db/orders?timeout=nan", "timeout='nan'"),
        ("postgresql://db/orders?checks=maybe", "on or off"),
        ("postgresql://db/orders?direct=a b", "host:port"),
        ("postgresql://db:99999999999999999999/orders", "cannot be used"),
        ("postgresql://[::1/orders", "cannot be used"),
        ("postgresql://db/orders?schema", "cannot be used"),
    ],
)
def test_a_url_that_means_nothing_is_told_what_is_wrong(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
        address_of(url)
