"""Checks SQLite files: where they lie, who may read them, and whether the disk has space."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from redrive.doctor.findings import Finding, failure, warning
from redrive.drivers.sqlite.database import path_of
from redrive.errors import ConfigError

_MIB = 1 << 20
_LARGE_WAL = 256 * _MIB
_LITTLE_SPACE, _NO_SPACE = 1024 * _MIB, 64 * _MIB
_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "glusterfs", "fuse.glusterfs", "ceph", "afs"}
_MOUNTS = Path("/proc/mounts")


def sqlite_files(urls: Mapping[str, str], mounts: Path = _MOUNTS) -> Iterator[Finding]:
    """Check every SQLite file that is configured, each once; `mounts` is a file as /proc/mounts."""
    found: dict[Path, str] = {}
    for about, url in urls.items():
        try:
            path = file_of(url)
        except ConfigError as error:
            yield failure(about, str(error), f"correct `{about}`")
            continue
        if path is not None:
            found.setdefault(path, about)
    for path, about in found.items():
        yield from _file(about, path, mounts)
    if len(found) > 1:
        yield _apart(found)


def file_of(url: str) -> Path | None:
    return path_of(url) if url.startswith("sqlite:") else None


def is_missing(url: str) -> bool:
    """Whether the file is not there, or the URL names none: neither is to be opened."""
    try:
        path = file_of(url)
    except ConfigError:
        return True
    return path is not None and not path.exists()


def _file(about: str, path: Path, mounts: Path) -> Iterator[Finding]:
    if not path.exists():
        yield _absent(about, path)
        return
    yield from _on_network(about, path, _mounted(mounts))
    yield from _readable(about, path)
    yield from _wal(about, path)
    yield from _free_space(about, path, shutil.disk_usage(path.parent).free)


def _absent(about: str, path: Path) -> Finding:
    if not path.parent.is_dir():
        return failure(about, f"its directory {path.parent} does not exist", f"mkdir -p {path.parent}")
    return warning(
        about,
        f"{path} is not there yet, or you are in another directory",
        "the first `redrive send` or `redrive run` makes it; if it is elsewhere, set `store` to its full path",
    )


def _on_network(about: str, path: Path, mounts: Mapping[Path, str]) -> Iterator[Finding]:
    """Warn of a file on a network file system, found by the nearest mount above it."""
    above = next((mounts[folder] for folder in path.parents if folder in mounts), "")
    if above in _NETWORK:
        yield failure(
            about,
            f"{path} is on a network file system ({above}), whose locks SQLite cannot trust: the file can be damaged",
            "move it to a local disk; processes on several machines need a database server as `store`",
        )


def _readable(about: str, path: Path) -> Iterator[Finding]:
    """Whether others can read it: they need every directory above it, too."""
    opened = all(folder.stat().st_mode & 0o001 for folder in path.parents)
    if opened and path.stat().st_mode & 0o006:
        yield warning(
            about,
            f"every user of this machine can read {path}, and message bodies are in it as they are",
            f"chmod 600 {path}*",
        )


def _wal(about: str, path: Path) -> Iterator[Finding]:
    wal = path.with_name(f"{path.name}-wal")
    size = wal.stat().st_size if wal.exists() else 0
    if size > _LARGE_WAL:
        yield warning(
            about,
            f"{wal.name} has grown to {size // _MIB:,} MiB: some process keeps reading from an old state",
            "look for a process that holds the file for long (lsof), and stop it",
        )


def _free_space(about: str, path: Path, free: int) -> Iterator[Finding]:
    said = f"{free // _MIB:,} MiB are free on the disk of {path}"
    if free < _NO_SPACE:
        yield failure(about, said, "make room now: what cannot be written is given back to its queue")
    elif free < _LITTLE_SPACE:
        yield warning(about, said, "make room, or set `retention.ttl` or `retention.max_letters`")


def _apart(found: Mapping[Path, str]) -> Finding:
    places = ", ".join(f"{about} in {path}" for path, about in found.items())
    return warning(
        "store",
        f"letters and queues are in different SQLite files: {places}",
        "embedded means one file: give `store` and `transports.default` the same URL, unless you mean it",
    )


def _mounted(mounts: Path) -> dict[Path, str]:
    """The kind of file system by mount point; empty where the machine does not say."""
    if not mounts.exists():
        return {}
    lines = (line.split() for line in mounts.read_text("utf-8", "replace").splitlines())
    return {Path(parts[1].replace("\\040", " ")): parts[2] for parts in lines if len(parts) > 2}
