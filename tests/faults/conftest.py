"""The accounting table of the fault tests, at the end of every run of them."""

from __future__ import annotations

import pytest

from tests.faults.harness import HEADING, Account

ACCOUNTS = pytest.StashKey[list[Account]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash.setdefault(ACCOUNTS, [])


@pytest.fixture
def accounts(request: pytest.FixtureRequest) -> list[Account]:
    return request.config.stash.setdefault(ACCOUNTS, [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if accounts := config.stash.get(ACCOUNTS, []):
        terminalreporter.section("every message accounted for")
        for line in (HEADING, *(account.row() for account in accounts)):
            terminalreporter.write_line(line)
