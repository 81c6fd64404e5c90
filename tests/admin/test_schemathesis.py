"""Every route of a running server, asked what its own document says and a good deal that it does not: never a 5xx."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.generation import GenerationMode

from redrive.access.actors import Role
from redrive.testing.builders import make_failure, make_letter, make_message
from tests.cli.served import Served, served

EXAMPLES = 4
_NOT_HERE = 503  # what an answer needs is away, and it says so


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("schema") / "redrive.db") as made:
        made.do(_fill(made))
        yield made


async def _fill(server: Served) -> None:
    await server.letters.record(
        [
            make_letter(make_message(id=f"m{n}", source="mail", body=b'{"n": %d}' % n), make_failure(type=f"E{n % 3}"))
            for n in range(12)
        ]
    )


@pytest.mark.parametrize("role", [Role.VIEWER, Role.ADMIN], ids=str)
@pytest.mark.parametrize("mode", list(GenerationMode), ids=str)
def test_no_route_answers_with_a_server_error(server: Served, role: Role, mode: GenerationMode) -> None:
    schema: Any = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    headers = {"Authorization": f"Bearer {server.token(role)}"}
    broken: list[tuple[str, str, int, str]] = []
    for operation in operations:
        _ask(operation, mode, server.url, headers, broken)
    assert broken == []
    assert len(operations) > 40


def _ask(operation: Any, mode: GenerationMode, url: str, headers: dict[str, str], broken: list[Any]) -> None:
    @seed(1)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(mode))
    def ask(case: Any) -> None:
        answer = case.call(base_url=url, headers=headers, timeout=60)
        if answer.status_code >= 500 and answer.status_code != _NOT_HERE:
            broken.append((case.method, case.formatted_path, answer.status_code, answer.text[:300]))

    try:
        ask()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE  # a route that takes nothing cannot be asked wrongly
