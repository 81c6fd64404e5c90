"""The console: pages at `/` and `/console/…`, made of static files; no build step, nothing from the network.

Files are served under the hash of them all (`/assets/<hash>/main.js`), so a browser keeps them for good and never mixes
those of two versions. README.md beside this says how a page is written.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from litestar import Request, Response, Router, get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath
from msgspec import Struct

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_KINDS = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FOREVER = "public, max-age=31536000, immutable"
_PLACE = b"{{assets}}"
_PRELOADS = b"<!-- preloads -->"


class Asset(Struct, frozen=True):
    """A file as it is sent."""

    kind: str
    plain: bytes
    packed: bytes


@cache
def assets() -> dict[str, Asset]:
    """Every script, style and picture by its path; read and compressed once."""
    return dict(sorted(_found(resources.files(__package__), "")))


def _found(folder: Traversable, path: str) -> list[tuple[str, Asset]]:
    found: list[tuple[str, Asset]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _found(entry, f"{path}{entry.name}/")
        elif kind := next((kind for end, kind in _KINDS.items() if entry.name.endswith(end)), None):
            content = entry.read_bytes()
            found.append((path + entry.name, Asset(kind, content, gzip.compress(content, 9, mtime=0))))
    return found


@cache
def tree_hash() -> str:
    """Names what is served: it is another one as soon as any byte of any file is."""
    found = hashlib.sha256()
    for path, asset in assets().items():
        found.update(f"{path} {len(asset.plain)} ".encode() + asset.plain)
    return found.hexdigest()[:16]


@cache
def read(name: str) -> bytes:
    """A page, with the place of its assets filled in, and all that it will import fetched at once."""
    place = f"/assets/{tree_hash()}".encode()
    written = resources.files(__package__).joinpath(name).read_bytes()
    imported = [path for path in assets() if path.endswith(".js") and path not in ("docs.js", "dom.js")]
    preloads = "\n  ".join(f'<link rel="modulepreload" href="{place.decode()}/{path}">' for path in imported)
    return written.replace(_PRELOADS, preloads.encode()).replace(_PLACE, place)


@get(["/", "/console", "/console/{path:path}"], role=None, any_parameters=True)
async def show_page() -> Response[bytes]:
    """Every page is this one, and its script reads the address. It is open: it shows nothing without a token."""
    return Response(read("index.html"), media_type="text/html", headers={"Content-Security-Policy": POLICY})


@get("/assets/{tree:str}/{path:path}", role=None)
async def show_asset(request: Request[Any, Any, Any], tree: FromPath[str], path: FromPath[str]) -> Response[bytes]:
    """Only what was read at first, so that a name is never a path; and only of this version."""
    asset = assets().get(path.removeprefix("/"))
    if asset is None or tree != tree_hash():
        raise NotFoundException
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": _FOREVER, "Vary": "Accept-Encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(asset.plain, media_type=asset.kind, headers=headers)
    return Response(asset.packed, media_type=asset.kind, headers={**headers, "Content-Encoding": "gzip"})


router = Router("/", route_handlers=[show_page, show_asset], include_in_schema=False)
