"""The descriptor of the pipeline: what the core knows of it."""

from redrive.systems.base import Format, System

system = System(
    name="pipeline",
    about="A graph of gRPC modules: engine, trace, replay",
    extra="grpc",
    settings="redrive.systems.pipeline.settings:PipelineSettings",
    command="redrive.systems.pipeline.commands:pipeline",
    rules="redrive.systems.pipeline:rules.yml",
    panels="redrive.systems.pipeline.panels:ROW",
    switch="graph",
    routes="redrive.systems.pipeline.routes:router",
    prepare="redrive.systems.pipeline.engine:with_pipeline",
    bodies={"pipeline": "redrive.systems.pipeline.bodies:read_body"},
    formats=(
        Format(
            name="pipeline",
            about="DlqMessages of an engine",
            reader="redrive.systems.pipeline.reader:PipelineReader",
            topic=r"dlq\..+\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",  # dlq.{cluster}.{node-uuid}
            header=("redrive-dlq-form", b"redrive.pipeline.DlqMessage"),
            transport="pipeline",
        ),
    ),
)
