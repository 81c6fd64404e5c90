"""The descriptor of file processing: what the core knows of it."""

from redrive.systems.base import System

system = System(
    name="files",
    about="File processing on RabbitMQ: topology, worker, dead-letter queues",
    extra="rabbitmq",
    settings="redrive.systems.files.settings:FilesSettings",
    command="redrive.systems.files.commands:files",
    rules="redrive.systems.files:rules.yml",
    panels="redrive.systems.files.panels:ROW",
    switch="url",
    routes="redrive.systems.files.routes:router",
    checks="redrive.systems.files.checks:examine",
)
