"""The section `pipeline` of the settings."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from msgspec import Struct

from redrive.config.settings import TICK, About


class PipelineSettings(Struct, frozen=True, kw_only=True):
    """The pipeline of gRPC modules (`redrive pipeline`): its transport, its graph, how modules are found."""

    transport: Annotated[
        str, About("What streams travel on: kafka://…, or sqlite:///file.db on one machine", least=1)
    ] = "kafka://127.0.0.1:9092"
    graph: Annotated[str | None, About("The graph, for `redrive up`: a YAML file", least=1)] = None
    group: Annotated[str, About("The consumer group of engines", least=1)] = "pipeline-engine"
    consul: Annotated[str | None, About("The Consul that knows the modules: http://host:8500", least=1)] = None
    consul_keep: Annotated[timedelta, About("How long its last answer stands while it is away", least=TICK)] = (
        timedelta(minutes=1)
    )
    concurrency: Annotated[int, About("How many streams of a node an engine works on at once", 1, 10_000)] = 64
    partitions: Annotated[int, About("Partitions of topics that we create", least=1, most=10_000)] = 6
    tls_ca: Annotated[str | None, About("Modules are called with TLS, and checked by this CA (PEM)", least=1)] = None
    tls_cert: Annotated[str | None, About("The certificate that engines show (PEM)", least=1)] = None
    tls_key: Annotated[str | None, About("Its key (PEM)", least=1)] = None
