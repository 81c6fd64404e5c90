"""The web page at `/`: static files, no build step, nothing from the network."""

from __future__ import annotations

from importlib import resources

from litestar import Response, Router, get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_SCRIPTS = (
    "main.js",
    "api.js",
    "dom.js",
    "views.js",
    "letter.js",
    "replay.js",
    "incidents.js",
    "groups.js",
    "queues.js",
    "docs.js",
)
_FILES = {
    "index.html": "text/html",
    "style.css": "text/css",
    "icon.svg": "image/svg+xml",
    **dict.fromkeys(_SCRIPTS, "text/javascript"),
}


def read(name: str) -> bytes:
    """A file of the page."""
    return resources.files(__package__).joinpath(name).read_bytes()


@get("/", role=None)
async def show_page() -> Response[bytes]:
    """The page itself is open: it shows nothing before it has a token."""
    return _answer("index.html")


@get("/console/{name:str}", role=None)
async def show_file(name: FromPath[str]) -> Response[bytes]:
    """Only what stands in the table, so that a name is never a path."""
    if name not in _FILES:
        raise NotFoundException
    return _answer(name)


def _answer(name: str) -> Response[bytes]:
    return Response(read(name), media_type=_FILES[name], headers={"Content-Security-Policy": POLICY})


router = Router("/", route_handlers=[show_page, show_file], include_in_schema=False)
