"""The files of the console: small, kept by browsers for good, and never of two versions."""

from __future__ import annotations

import gzip
import re

from redrive import console
from redrive.access.actors import Role
from tests.admin.conftest import Client

BUDGET = 250_000
"""Bytes of all scripts and styles, compressed."""


def test_scripts_and_styles_are_within_their_budget() -> None:
    found = {path: len(asset.packed) for path, asset in console.assets().items() if path.endswith((".js", ".css"))}
    assert "main.js" in found
    assert "vendor/preact.js" in found
    assert sum(found.values()) < BUDGET


async def test_an_asset_is_compressed_and_kept_for_good(client: Client) -> None:
    http = await client(Role.VIEWER)
    page = (await http.get("/")).text
    (script,) = re.findall(r'<script type="module" src="([^"]+)"', page)
    plain = await http.get(script, headers={"Accept-Encoding": "identity"})
    packed = await http.get(script, headers={"Accept-Encoding": "gzip, br"})
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == plain.content == gzip.decompress(console.assets()["main.js"].packed)
    for answer in (plain, packed):
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["vary"] == "Accept-Encoding"
        assert answer.headers["content-type"].startswith("text/javascript")
        assert "require-trusted-types-for 'script'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]


async def test_every_script_that_a_page_imports_is_named_in_it_and_is_there(client: Client) -> None:
    http = await client(Role.VIEWER)
    page = (await http.get("/console/letters/some?tab=body")).text
    assert page == (await http.get("/")).text
    named = re.findall(r'(?:href|src)="(/assets/[^"]+)"', page)
    assert len(named) > 30
    for path in named:
        assert (await http.get(path)).status_code == 200, path


async def test_what_is_of_another_version_or_no_asset_is_not_there(client: Client) -> None:
    http = await client(Role.VIEWER)
    tree = console.tree_hash()
    for path in ("0000/main.js", f"{tree}/__init__.py", f"{tree}/../admin/access.py", f"{tree}/README.md", f"{tree}/"):
        answer = await http.get(f"/assets/{path}")
        assert answer.status_code == 404, path
        assert answer.headers["cache-control"] == "no-store"
