"""Pytest plugin: workers begin with the folders whose files take long, and end with the quick ones.

With `--dist loadfile` a file is one worker's; if a long one came last, the other workers would have nothing to do
beside it. xdist by itself begins with the files that hold the most tests, and those are the quick ones. The long
folders take turns, so that what kills dozens of processes has something calmer beside it.
"""

from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LONG = (
    *("faults", "systems", "trouble", "integrations", "collect", "examples", "servers"),
    *("conformance", "docs", "packaging", "console", "properties"),
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        place = {path: number for number, path in enumerate(ordered(item.path for item in items))}
        items.sort(key=lambda item: place[item.path])


def ordered(paths: Iterable[Path]) -> list[Path]:
    """Each file once: the first of every long folder, the second of every one, and so on; then the others as found."""
    found = list(dict.fromkeys(paths))
    columns = [[path for path in found if _folder(path) == folder] for folder in LONG]
    long = [path for turn in zip_longest(*columns) for path in turn if path is not None]
    return long + [path for path in found if _folder(path) not in LONG]


def _folder(path: Path) -> str:
    return path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else ""
