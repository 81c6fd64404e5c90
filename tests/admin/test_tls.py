"""HTTPS with real certificates, which are renewed while the server runs."""

from __future__ import annotations

import asyncio
import re
import signal
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest

from redrive.admin.tls import Tls
from tests.admin.process import redrive


def certificate(place: Path, name: str, *, expired: bool = False) -> None:
    """A certificate for localhost with that common name, as `cert.pem` and `key.pem`, put there as certbot does."""
    new = place / f"{name}.d"
    new.mkdir()
    made = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key.pem -out cert.pem"
    subprocess.run(
        [*made.split(), "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"],
        cwd=new,
        check=True,
        capture_output=True,
    )
    if expired:
        asked = "openssl x509 -x509toreq -in cert.pem -signkey key.pem -out asked.pem"
        signed = "openssl x509 -req -in asked.pem -signkey key.pem -days -1 -out cert.pem"
        for words in (asked, signed):
            subprocess.run(words.split(), cwd=new, check=True, capture_output=True)
    for file in ("cert.pem", "key.pem"):
        (new / file).replace(place / file)


def name_shown(place: Path, port: int) -> str:
    """The common name of the certificate that a client sees, which trusts only what is in the file now."""
    trusting = ssl.create_default_context(cafile=place / "cert.pem")
    with (
        httpx.Client(verify=trusting) as http,
        http.stream("GET", f"https://127.0.0.1:{port}/healthz") as answer,
    ):
        assert answer.status_code == 200
        found = answer.extensions["network_stream"].get_extra_info("ssl_object").getpeercert()
    return str(dict(pair for part in found["subject"] for pair in part)["commonName"])


async def seen(place: Path, port: int, name: str) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                if await asyncio.to_thread(name_shown, place, port) == name:
                    return
            except httpx.ConnectError:
                pass
            await asyncio.sleep(0.1)


async def test_a_renewed_certificate_is_taken_and_a_broken_one_is_not(tmp_path: Path) -> None:
    certificate(tmp_path, "first")
    words = ["--port", "0", "--print-token", "--tls-cert", "cert.pem", "--tls-key", "key.pem"]
    async with redrive(tmp_path, "up", *words) as up:
        port = int((await up.line(r"https://127\.0\.0\.1:(\d+)/#token="))[1])
        await up.line("Ctrl-C")
        await seen(tmp_path, port, "first")
        certificate(tmp_path, "second")
        await seen(tmp_path, port, "second")
        kept = (tmp_path / "cert.pem").read_bytes()
        (tmp_path / "cert.pem").write_text("not a certificate")
        assert up.child.stderr is not None
        async with asyncio.timeout(60):
            while not re.search(b"not taken.*old one stays", await up.child.stderr.readline()):
                pass
        (tmp_path / "trusted.pem").write_bytes(kept)
        with httpx.Client(verify=ssl.create_default_context(cafile=tmp_path / "trusted.pem")) as http:
            assert (await asyncio.to_thread(http.get, f"https://127.0.0.1:{port}/healthz")).status_code == 200
        assert await up.end(signal.SIGINT) == 0


def test_an_expired_certificate_is_told_and_takes_the_place_of_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate(tmp_path, "old", expired=True)
    tls = Tls(tmp_path / "cert.pem", tmp_path / "key.pem")
    assert "has expired" in caplog.text
    caplog.clear()
    certificate(tmp_path, "new")
    assert tls.renew()
    assert "has expired" not in caplog.text
    certificate(tmp_path, "older", expired=True)
    assert not tls.renew()
    assert "the old one stays: it has expired" in caplog.text


async def test_a_pair_that_is_none_is_said_at_the_start(tmp_path: Path) -> None:
    certificate(tmp_path, "first")
    (tmp_path / "other").mkdir()
    certificate(tmp_path / "other", "other")
    for words, said in (
        (("--tls-cert", "cert.pem"), "takes both"),
        (("--tls-cert", "cert.pem", "--tls-key", "none.pem"), "not there"),
        (("--tls-cert", "cert.pem", "--tls-key", "other/key.pem"), "another certificate"),
        (("--tls-cert", "key.pem", "--tls-key", "key.pem"), "PEM"),
    ):
        async with redrive(tmp_path, "up", "--port", "0", *words) as up:
            assert await up.end() == 2
            assert said in await up.errors()
