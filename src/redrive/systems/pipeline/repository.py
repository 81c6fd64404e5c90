"""Repositories: where documents lie that streams carry by reference."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from redrive.errors import ConfigError, UsageError
from redrive.systems.pipeline.pipeline_pb2 import Document, DocumentRef


class Repository(Protocol):
    """Bytes under keys, as a directory or a bucket has them."""

    async def put(self, key: str, content: bytes) -> None:
        """Durable when it returns; the same key again replaces it."""
        ...

    async def get(self, key: str) -> bytes:
        """Raises UsageError if there is no such key."""
        ...

    async def aclose(self) -> None:
        """Let go of everything."""
        ...


def open_repository(place: str) -> Repository:
    """A directory, or `s3://bucket/prefix?endpoint=http://127.0.0.1:9000`."""
    if place.startswith("s3://"):
        from redrive.systems.pipeline.s3 import s3_repository

        return s3_repository(place)
    if "://" in place:
        raise ConfigError(f"{place!r} is no repository: it is a directory, or s3://bucket/prefix")
    return DirectoryRepository(place)


class DirectoryRepository:
    """A directory that engine and modules share."""

    def __init__(self, directory: Path | str) -> None:
        self._directory = Path(directory)

    async def put(self, key: str, content: bytes) -> None:
        await asyncio.to_thread(self._put, self._path(key), content)

    async def get(self, key: str) -> bytes:
        path = self._path(key)
        try:
            return await asyncio.to_thread(path.read_bytes)
        except FileNotFoundError:
            raise UsageError(f"there is no document {key!r} in {self._directory}") from None

    async def aclose(self) -> None:
        """It holds nothing."""

    def _put(self, path: Path, content: bytes) -> None:
        """Whole or not at all, even if the power goes."""
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.{uuid4().hex}")
        with new.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)

    def _path(self, key: str) -> Path:
        path = (self._directory / key).resolve()
        if not key or self._directory.resolve() not in path.parents:
            raise UsageError(f"{key!r} is no key of a document: it has to stay inside {self._directory}")
        return path


async def stored(document: Document, repository: Repository, key: str) -> DocumentRef:
    """The document put there, and the reference that travels in its place."""
    await repository.put(key, document.content)
    return DocumentRef(
        document_id=document.document_id,
        key=key,
        content_type=document.content_type,
        size=len(document.content),
        metadata=document.metadata,
    )


async def loaded(reference: DocumentRef, repository: Repository) -> Document:
    """The document that the reference means."""
    return Document(
        document_id=reference.document_id,
        content_type=reference.content_type,
        content=await repository.get(reference.key),
        metadata=reference.metadata,
    )
