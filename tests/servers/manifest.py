"""What a directory of the cache must contain, file by file."""

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from tests.servers.errors import InstallError

MANIFEST = "MANIFEST.json"


def sha256(file: Path) -> str:
    """The checksum of a file, as sha256sum prints it."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def verify_lock(directory: Path, lock: Path) -> None:
    """The directory holds exactly the files of the lock (sha256sum format), with exactly these checksums."""
    pinned = {name: digest for digest, name in (line.split() for line in lock.read_text().splitlines())}
    found = {file.name: sha256(file) for file in directory.iterdir()}
    wrong = sorted(name for name, _ in pinned.items() ^ found.items())
    if wrong:
        raise InstallError(
            f"{', '.join(dict.fromkeys(wrong))}: not the file pinned in {lock.name}; "
            f"if the version was raised on purpose, write a new lock with sha256sum"
        )


def _stamp(file: Path) -> str:
    stat = file.stat()
    return f"{stat.st_size}-{stat.st_mtime_ns}-{stat.st_ctime_ns}"


@dataclass(frozen=True)
class Sealed:
    """One file: its checksum, and the stamp under which the checksum need not be computed again."""

    sha256: str
    stamp: str

    def matches(self, file: Path) -> bool:
        return file.is_file() and (self.stamp == _stamp(file) or self.sha256 == sha256(file))


@dataclass(frozen=True)
class Manifest:
    """Every file of a directory, and the inputs it was made from."""

    inputs: str
    files: dict[str, Sealed]

    @classmethod
    def of(cls, directory: Path, inputs: str) -> Self:
        """The manifest of the directory as it is now."""
        files = sorted(file for file in directory.rglob("*") if file.is_file() and file.name != MANIFEST)
        return cls(inputs, {str(f.relative_to(directory)): Sealed(sha256(f), _stamp(f)) for f in files})

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """The manifest kept in the directory; None where there is none that can be read."""
        try:
            raw = json.loads((directory / MANIFEST).read_text())
            return cls(raw["inputs"], {name: Sealed(**entry) for name, entry in raw["files"].items()})
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, directory: Path) -> None:
        """Replaces the manifest of the directory in one step."""
        draft = directory / f"{MANIFEST}.{os.getpid()}"
        draft.write_text(json.dumps(asdict(self), indent=1))
        draft.replace(directory / MANIFEST)

    def matches(self, directory: Path) -> bool:
        """Whether every file is there, unchanged."""
        return all(sealed.matches(directory / name) for name, sealed in self.files.items())
