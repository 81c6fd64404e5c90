"""The descriptor of tickets: what the core knows of them."""

from redrive.systems.base import Format, System

_STORE = "redrive.systems.tickets.store:open_tickets"

system = System(
    name="tickets",
    about="The ticket worker on Kafka: topics, worker, DLQ, republish",
    extra="kafka,redis,mongodb",
    settings="redrive.systems.tickets.settings:TicketSettings",
    command="redrive.systems.tickets.commands:tickets",
    rules="redrive.systems.tickets:rules.yml",
    panels="redrive.systems.tickets.panels:ROW",
    formats=(
        Format(
            name="tickets",
            about="JSON objects with a field dlq_metadata",
            reader="redrive.systems.tickets.reader:TicketReader",
            value=b"dlq_metadata",
        ),
    ),
    stores=dict.fromkeys(("tickets+mongodb", "tickets+mongodb+srv"), _STORE),
)
