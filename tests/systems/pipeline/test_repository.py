"""Documents by reference: in a directory, and in a bucket of a server that speaks S3."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from redrive.errors import ConfigError, Unavailable, UsageError
from redrive.extras import install
from redrive.systems.pipeline import (
    DirectoryRepository,
    Document,
    Module,
    PipeStream,
    ProcessRequest,
    Repository,
    open_repository,
)
from redrive.systems.pipeline.repository import stored
from tests.servers.ports import claim_port

pytestmark = pytest.mark.usefixtures("credentials")


@asynccontextmanager
async def opened(place: str) -> AsyncIterator[Repository]:
    repository = open_repository(place)
    yield repository
    await repository.aclose()


async def buckets(endpoint: str, *, create: str = "", bucket: str = "", key: str = "") -> bytes:
    """As somebody else with a client of S3 would."""
    from aiobotocore.session import get_session  # type: ignore[import-untyped]

    async with get_session().create_client("s3", region_name="us-east-1", endpoint_url=endpoint) as client:
        if create:
            await client.create_bucket(Bucket=create)
            return b""
        found: bytes = await (await client.get_object(Bucket=bucket, Key=key))["Body"].read()
        return found


async def shouted(repository: Repository) -> None:
    """A module gets the document that a reference means."""
    document = Document(document_id="d-1", content_type="text/plain", content=b"large", metadata={"lang": "en"})
    reference = await stored(document, repository, "2026/d 1")
    assert (reference.size, reference.key, reference.content_type) == (5, "2026/d 1", "text/plain")
    module = Module("shout", repository=repository)
    got: list[Document] = []

    @module.process
    def shout(document: Document) -> Document:
        got.append(document)
        return Document(content=document.content.upper())

    request = ProcessRequest(stream=PipeStream(stream_id="s", document_ref=reference))
    assert (await module.answer(request)).document.content == b"LARGE"
    assert got == [document]
    await repository.put("2026/d 1", b"\x00" * 3_000_000)
    assert await repository.get("2026/d 1") == b"\x00" * 3_000_000, "the same key again replaces it"
    with pytest.raises(UsageError, match="no document 'gone'"):
        await repository.get("gone")
    with pytest.raises(UsageError, match="no key"):
        await repository.put("", b"")


async def test_in_a_directory(tmp_path: Path) -> None:
    async with opened(str(tmp_path)) as repository:
        await shouted(repository)
    for key in ("../out", "/etc/passwd"):
        with pytest.raises(UsageError, match="no key"):
            await DirectoryRepository(tmp_path).put(key, b"")


async def test_in_a_bucket(moto: str) -> None:
    await buckets(moto, create="documents")
    async with opened(f"s3://documents/some/prefix?endpoint={moto}&region=us-east-1") as repository:
        await shouted(repository)
        await repository.put("seen", b"by others")
    assert await buckets(moto, bucket="documents", key="some/prefix/seen") == b"by others"


async def test_a_bucket_that_is_not_there(moto: str) -> None:
    async with opened(f"s3://nowhere?endpoint={moto}&region=us-east-1") as repository:
        with pytest.raises(ConfigError, match="no bucket 'nowhere': create it"):
            await repository.put("key", b"")


async def test_a_server_that_is_away() -> None:
    async with opened(f"s3://documents?endpoint=http://127.0.0.1:{claim_port()}&region=us-east-1") as repository:
        with pytest.raises(Unavailable, match=r"S3 is unavailable: .*127\.0\.0\.1"):
            await repository.get("key")


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("s3:///prefix", "no bucket"),
        ("s3://bucket?endpont=x", "unknown option 'endpont'.*endpoint"),
        ("gs://bucket", "a directory, or s3://"),
    ],
)
def test_a_place_that_is_none(place: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        open_repository(place)


def test_without_its_extra() -> None:
    program = (
        "import sys; sys.modules['aiobotocore.config'] = None\n"
        "from redrive.systems.pipeline import open_repository\n"
        "open_repository('s3://bucket')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert f"a repository in S3 needs an extra: {install('s3')}" in done.stderr
