"""Checks the types of the console's scripts (JSDoc) with tsc: `python -m tools.types`. Without Node it says so.

tsc and the types of the vendored libraries come from npm, by the lock in tools/console/, into .venv/console-types.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
CONSOLE = ROOT / "src" / "redrive" / "console"
LOCK = Path(__file__).parent / "console"
PLACE = ROOT / ".venv" / "console-types"
# not `npm ci`: that wants the binaries of every platform in the lock, and a mirror may have only some of them
_INSTALL = ("install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
_TYPES = {
    "preact": "preact/src/index.d.ts",
    "preact/hooks": "preact/hooks/src/index.d.ts",
    "@preact/signals": "@preact/signals/dist/signals.d.ts",
    "@preact/signals-core": "@preact/signals-core/dist/signals-core.d.ts",
    "htm": "htm/dist/htm.d.ts",
    "uplot": "uplot/dist/uPlot.d.ts",
}


def install() -> None:
    """What the lock names, once."""
    made, lock = PLACE / "made", (LOCK / "package-lock.json").read_text()
    if made.exists() and made.read_text() == lock:
        return
    PLACE.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(LOCK / name, PLACE)
    subprocess.run(["npm", *_INSTALL], cwd=PLACE, check=True)  # noqa: S603, S607
    made.write_text(lock)


def configure() -> Path:
    """How strict tsc is, and where it finds the libraries' types."""
    modules = PLACE / "node_modules"
    options = {
        "allowJs": True,
        "checkJs": True,
        "noEmit": True,
        "strict": True,
        "noImplicitAny": False,  # what a page gets from the API is checked by the server, and casts would hide the page
        "noUncheckedIndexedAccess": True,
        "target": "es2023",
        "module": "esnext",
        "moduleResolution": "bundler",
        "lib": ["es2024", "dom", "dom.iterable", "dom.asynciterable"],
        "skipLibCheck": True,
        "types": [],
        "paths": {name: [str(modules / path)] for name, path in _TYPES.items()},
    }
    scripts = [str(path) for path in sorted(CONSOLE.rglob("*.js")) if "vendor" not in path.parts]
    made = PLACE / "tsconfig.json"
    made.write_text(json.dumps({"compilerOptions": options, "files": scripts}, indent=2))
    return made


def main() -> int:
    if not (shutil.which("node") and shutil.which("npm")):
        sys.stdout.write("There is no Node with npm here: the types of the console's scripts were not checked\n")
        return 0
    install()
    words = [str(PLACE / "node_modules" / ".bin" / "tsc"), "-p", str(configure())]
    return subprocess.run(words, check=False).returncode  # noqa: S603


if __name__ == "__main__":
    raise SystemExit(main())
