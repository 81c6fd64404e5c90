"""`opensearch+https://` against a cluster behind a certificate that nobody knows."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from redrive.errors import StoreUnavailable
from redrive.stores.opensearch import open_store
from tests.servers.opensearch import OpenSearch
from tests.servers.ports import LOOPBACK


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With its key, in one file; signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "redrive test")])
    now, day = datetime.now(UTC), timedelta(days=1)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now - day).not_valid_after(now + day)
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(LOOPBACK))]), critical=False)
    signed = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(secret + signed.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    return path


@pytest_asyncio.fixture
async def address(certificate: Path, opensearch_server: OpenSearch) -> AsyncIterator[str]:
    """Of a door that speaks TLS and leads to the cluster."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)

    async def led(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection(LOOPBACK, opensearch_server.port)
        await asyncio.gather(_carried(reader, inner_writer), _carried(inner_reader, writer))

    server = await asyncio.start_server(led, LOOPBACK, 0, ssl=context)
    async with server:
        yield f"{LOOPBACK}:{server.sockets[0].getsockname()[1]}"


async def _carried(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def test_a_certificate_that_is_known(address: str, certificate: Path) -> None:
    store = open_store(f"opensearch+https://{address}/secret?ca={certificate}")
    await store.check()
    await store.aclose()


async def test_a_certificate_that_is_not_to_be_checked(address: str) -> None:
    store = open_store(f"opensearch+https://{address}/secret?verify=false")
    await store.check()
    await store.aclose()


async def test_a_certificate_that_nobody_knows(address: str) -> None:
    store = open_store(f"opensearch+https://{address}/secret")
    with pytest.raises(StoreUnavailable, match="certificate"):
        await store.check()
    await store.aclose()


async def test_a_cluster_that_is_spoken_to_without_tls(address: str) -> None:
    store = open_store(f"opensearch://{address}/secret")
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await store.check()
    await store.aclose()
