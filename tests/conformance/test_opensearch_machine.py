"""Whatever happens to letters, in whatever order: OpenSearch answers as the reference does, in a contract's shape, too.

HYPOTHESIS_PROFILE=thorough looks longer.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from opensearchpy import AsyncOpenSearch

from redrive.stores.base import Store
from redrive.stores.opensearch import OpenSearchStore
from tests.conformance.opensearch_indexes import TaskShape, empty
from tests.properties.test_store_machine import SHORT, THOROUGH, LetterMachine
from tests.servers.opensearch import OpenSearch

INDEX = "machine"
FEW = settings(SHORT, max_examples=60 if THOROUGH else 5, stateful_step_count=60 if THOROUGH else 25)


def test_opensearch_answers_as_the_reference_does(opensearch_server: OpenSearch) -> None:
    class OpenSearchMachine(LetterMachine):
        def open(self) -> Store:
            self.client = AsyncOpenSearch(opensearch_server.url, timeout=60)
            return OpenSearchStore(self.client, index=INDEX, shape=TaskShape())

        def teardown(self) -> None:
            if hasattr(self, "client"):
                self.run(empty(self.client, INDEX))
                self.run(self.client.close())
            super().teardown()

    run_state_machine_as_test(OpenSearchMachine, settings=FEW)
