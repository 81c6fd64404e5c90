"""BullMQ and all it needs on Node, from the npm registry: what the tests run real workers with."""

import shutil
from pathlib import Path

from tests.servers.cache import Artefact, run_step
from tests.servers.needs import Needs
from tests.servers.tools import NODE, NPM

VERSION = "6.7.0"
# the one lock of it in the tree: it says for each package which bytes npm takes
PACKAGE = Path(__file__).parents[2] / "benchmarks" / "peers" / "bullmq_node"
_FILES = ("package.json", "package-lock.json")
# not `npm ci`: that wants the binaries of every platform in the lock, and a mirror may have only some of them
_INSTALL = ("install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")


def _fetch(target: Path, work: Path) -> None:
    for name in _FILES:
        shutil.copy(PACKAGE / name, target)
    npm = NPM.require("bullmq")
    run_step("bullmq", [npm, *_INSTALL, f"--cache={work / 'npm'}"], cwd=target)


def _inputs() -> str:
    return "".join((PACKAGE / name).read_text() for name in _FILES)


BULLMQ = Artefact("bullmq", VERSION, _fetch, inputs=_inputs, tools=(NODE, NPM))
NEEDS = Needs(artefacts=(BULLMQ,), tools=(NODE,))
