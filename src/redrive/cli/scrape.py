"""`--metrics-port`: a worker that can be scraped."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from redrive.processes.child import adopt

if TYPE_CHECKING:
    from redrive.app import Redrive
    from redrive.telemetry.metrics import Metrics
    from redrive.worker import Helper


class Place(Struct, frozen=True):
    """The address that a worker serves its metrics on."""

    host: str
    port: int


def scraped(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options --metrics-port and --metrics-host; the command gets them as `scrape`."""

    @functools.wraps(command)
    def with_place(metrics_port: int | None, metrics_host: str, **options: Any) -> Any:
        place = None if metrics_port is None else Place(metrics_host, metrics_port)
        return command(scrape=place, **options)

    host = click.option(
        "--metrics-host",
        default="127.0.0.1",
        show_default=True,
        help="The address it serves them on; on others than loopback /metrics needs a viewer's token.",
    )
    text = "Serve /metrics, /healthz and /readyz of this worker on this port; 0 takes a free one."
    return click.option("--metrics-port", type=click.IntRange(0, 65_535), help=text)(host(with_place))


def beside(app: Redrive, place: Place | None, metrics: Metrics | None = None) -> Sequence[Helper]:
    """The helpers that serve metrics beside a worker. One of several answers its supervisor, which serves them."""
    if place is None:
        return ()
    if (child := adopt()) is not None:
        from redrive.admin.answers import answer_for

        answer_for(child, app, metrics)
        return ()
    from redrive.admin.scrape import Scrape

    scrape = Scrape(app, place.host, place.port, metrics)
    say_where(place, scrape.port)
    return (scrape.run,)


def say_where(place: Place, port: int) -> None:
    host = f"[{place.host}]" if ":" in place.host else place.host
    click.echo(f"metrics  http://{host}:{port}/metrics")
