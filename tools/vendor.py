"""The console's libraries, from npm: `python -m tools.vendor` fetches them, `--check` fails if a file is not as pinned.

They are served as they are, without a build: what imports another by its name (`"preact"`) imports the file beside it
after this. A package is taken only if its tarball has the hash below; `vendor/SHA256SUMS` pins what was made of it.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

VENDOR = Path(__file__).parent.parent / "src" / "redrive" / "console" / "vendor"
SUMS = "SHA256SUMS"


@dataclass(frozen=True)
class Package:
    """A package of npm, the hash of its tarball, and which of its files we serve under which name."""

    name: str
    version: str
    sha256: str
    files: dict[str, str]


PACKAGES = (
    Package(
        "preact",
        "11.2.0",
        "3c4456766bd32b6b534d52bf4e9c2a29b33e7eedf6e96ed479300ba1a7888ebf",
        {"dist/preact.mjs": "preact.js", "hooks/dist/hooks.mjs": "hooks.js", "LICENSE": "preact.LICENSE"},
    ),
    Package(
        "@preact/signals-core",
        "1.14.5",
        "94c421ac996214c94f532fb4c43d8ede048a16df0cd9538ffb965174dbe8daba",
        {"dist/signals-core.mjs": "signals-core.js", "LICENSE": "signals-core.LICENSE"},
    ),
    Package(
        "@preact/signals",
        "2.11.4",
        "66ea8221dd8aaa0da2365d49c3f116b071d56cfb63b2e16c072c6b4e08a928b7",
        {"dist/signals.mjs": "signals.js", "LICENSE": "signals.LICENSE"},
    ),
    Package(
        "htm",
        "3.1.1",
        "2425b9bee11409177bcabc7f32e319926fc6690c1701c0b257c88bdff2d5ba90",
        {"dist/htm.mjs": "htm.js", "LICENSE": "htm.LICENSE"},
    ),
    Package(
        "uplot",
        "1.6.32",
        "4b8a8191e425658e3ea8c8c1314b0fc679c861ee3a1af2b20c7b16ba50b5133d",
        {"dist/uPlot.esm.js": "uplot.js", "dist/uPlot.min.css": "uplot.css", "LICENSE": "uplot.LICENSE"},
    ),
)
_BESIDE = {
    "preact": "./preact.js",
    "preact/hooks": "./hooks.js",
    "@preact/signals-core": "./signals-core.js",
}
IMPORT = re.compile(r"""(\bfrom\s*|\bimport\s*\(?\s*)(["'])([@\w./-]+)\2""")
_SOURCE_MAP = re.compile(r"\n?//# sourceMappingURL=\S+\n?")


def fetch(package: Package) -> dict[str, bytes]:
    """The files of a package as they are served, by their names in vendor/."""
    with tempfile.TemporaryDirectory() as place:
        words = ["npm", "pack", "--silent", "--ignore-scripts", f"{package.name}@{package.version}"]
        subprocess.run(words, cwd=place, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        (tarball,) = Path(place).glob("*.tgz")
        if (found := _sum(tarball.read_bytes())) != package.sha256:
            raise SystemExit(f"{package.name}@{package.version} has the hash {found}, not the one that is pinned")
        with tarfile.open(tarball) as opened:
            return {name: served(name, _member(opened, path)) for path, name in package.files.items()}


def _member(opened: tarfile.TarFile, path: str) -> bytes:
    file = opened.extractfile(f"package/{path}")
    if file is None:
        raise SystemExit(f"the package has no {path}: it may have moved in this version")
    return file.read()


def served(name: str, content: bytes) -> bytes:
    """The file with imports that a browser finds, and without a source map that is not there."""
    if not name.endswith(".js"):
        return content
    text = _SOURCE_MAP.sub("\n", content.decode())
    return IMPORT.sub(lambda found: f"{found[1]}{found[2]}{_path_of(name, found[3])}{found[2]}", text).encode()


def _path_of(name: str, imported: str) -> str:
    if imported not in _BESIDE:
        raise SystemExit(f"{name} imports {imported!r}, which is not vendored: add its package")
    return _BESIDE[imported]


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def write() -> None:
    """Fetch all and write them with their hashes. Our own `.d.ts` files beside them stay."""
    VENDOR.mkdir(exist_ok=True)
    made = {name: content for package in PACKAGES for name, content in fetch(package).items()}
    for name, content in made.items():
        (VENDOR / name).write_bytes(content)
    (VENDOR / SUMS).write_text("".join(f"{_sum(content)}  {name}\n" for name, content in sorted(made.items())))


def wrong() -> list[str]:
    """What in vendor/ is missing, changed, or not of a package."""
    pinned = {name: found for found, name in (line.split("  ") for line in (VENDOR / SUMS).read_text().splitlines())}
    named = {name for package in PACKAGES for name in package.files.values()}
    there = {path.name for path in VENDOR.iterdir() if path.name != SUMS and not path.name.endswith(".d.ts")}
    found = [f"{name} is not of a pinned package" for name in sorted(there - named)]
    found += [f"{name} is missing" for name in sorted(named - there)]
    changed = (name for name in sorted(named & there) if _sum((VENDOR / name).read_bytes()) != pinned.get(name))
    return found + [f"{name} is not as it was fetched" for name in changed]


def main(arguments: list[str]) -> int:
    if "--check" not in arguments:
        write()
        return 0
    found = wrong()
    if found:
        sys.stderr.write(f"console/vendor: {'; '.join(found)}. Run `python -m tools.vendor`.\n")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
