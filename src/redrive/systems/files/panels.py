"""What is shown of file processing: a row of `redrive dashboard`."""

from __future__ import annotations

from redrive.telemetry.panels import Row, graph

ROW = Row(
    "Files",
    (
        graph(
            "In the dead-letter queues",
            (
                'max by (queue) ({__name__=~"rabbitmq_(detailed_)?queue_messages",queue=~"q[.].+[.]dlq"})',
                "{{queue}}",
            ),
            about="from RabbitMQ's own plug-in rabbitmq_prometheus",
        ),
        graph(
            "Waiting",
            (
                'max by (queue) ({__name__=~"rabbitmq_(detailed_)?queue_messages",'
                'queue=~"q[.][^.]+|q[.]upload[.]commands"})',
                "{{queue}}",
            ),
        ),
        graph(
            "Died",
            (
                'sum by (source) (rate(redrive_letters_buried_total{source=~"q[.].+"}[$__rate_interval]))',
                "{{source}}",
            ),
            unit="ops",
        ),
    ),
)
