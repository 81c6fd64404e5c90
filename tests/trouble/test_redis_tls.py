"""`rediss://` against a server behind a certificate that nobody else knows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from redrive.errors import TransportUnavailable
from redrive.testing.builders import make_message
from tests.servers.pool import ServerPool
from tests.servers.ports import LOOPBACK, claim_port
from tests.servers.redis import Redis
from tests.trouble.redis_queue import transport_on


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With its key, in one file; signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "redrive test")])
    now, day = datetime.now(UTC), timedelta(days=1)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now - day, now + day)
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(LOOPBACK))]), critical=False)
    signed = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(secret + signed.sign(key, hashes.SHA256()).public_bytes(pem))
    return path


@pytest.fixture(scope="module")
def url(certificate: Path) -> Iterator[str]:
    port, pool = claim_port(), ServerPool()
    files = [f"tls-{kind}-file {certificate}" for kind in ("cert", "key", "ca-cert")]
    pool.private(lambda: Redis(lines=[f"tls-port {port}", "tls-auth-clients no", *files]))
    yield f"rediss://{LOOPBACK}:{port}/0"
    pool.discard()


@pytest.mark.servers
async def test_messages_over_tls(url: str, certificate: Path) -> None:
    async with transport_on(f"{url}?ssl_ca_certs={certificate}") as transport:
        await transport.send([make_message(id="sealed")])
        [delivery] = await transport.receive("orders", 1)
        assert delivery.message.id == "sealed"


@pytest.mark.servers
async def test_a_certificate_that_nobody_knows_is_refused(url: str) -> None:
    async with transport_on(url) as transport:
        with pytest.raises(TransportUnavailable, match="certificate verify failed"):
            await transport.check()
