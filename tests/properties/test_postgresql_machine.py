"""Whatever happens to letters, in whatever order, PostgreSQL answers as the reference does; behind PgBouncer too."""

from __future__ import annotations

from itertools import count

from hypothesis.stateful import run_state_machine_as_test

from redrive.stores.base import Store
from redrive.stores.postgresql import open_store
from tests.properties.test_store_machine import SHORT, LetterMachine


def test_postgresql(postgresql_url: str) -> None:
    run_machine(postgresql_url)


def test_behind_pgbouncer(pgbouncer_url: str) -> None:
    run_machine(pgbouncer_url)


def run_machine(url: str) -> None:
    numbers = count(1)

    class PostgresMachine(LetterMachine):
        def open(self) -> Store:
            return open_store(f"{url}?schema=machine_{next(numbers)}")

    run_state_machine_as_test(PostgresMachine, settings=SHORT)
