"""The web page at `/`: static files, no build step, nothing from the network."""

from __future__ import annotations

from importlib import resources

from fastapi import APIRouter, HTTPException, Response

from redrive.admin.access import needs

router = APIRouter(include_in_schema=False)

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
_SCRIPTS = ("main.js", "api.js", "dom.js", "views.js", "letter.js", "replay.js", "incidents.js")
_FILES = {
    "index.html": "text/html",
    "style.css": "text/css",
    "icon.svg": "image/svg+xml",
    **dict.fromkeys(_SCRIPTS, "text/javascript"),
}


@router.get("/", dependencies=[needs(None)])
async def page() -> Response:
    """The page itself is open: it shows nothing before it has a token."""
    return await file("index.html")


@router.get("/console/{name}", dependencies=[needs(None)])
async def file(name: str) -> Response:
    """Only what stands in the table, so that a name is never a path."""
    if name not in _FILES:
        raise HTTPException(404)
    content = resources.files(__package__).joinpath(name).read_bytes()
    return Response(content, media_type=_FILES[name], headers={"Content-Security-Policy": _POLICY})
