"""The descriptor of the e-mail system: what the core knows of it."""

from redrive.systems.base import System

_STORE = "redrive.systems.email.dlq:open_store"

system = System(
    name="email",
    about="The e-mail gateway on Redis: worker, jobs, DLQ, fairness",
    extra="email",
    settings="redrive.systems.email.settings:EmailSettings",
    command="redrive.systems.email.commands:email",
    rules="redrive.systems.email:rules.yml",
    panels="redrive.systems.email.panels:ROW",
    stores=dict.fromkeys(("email+redis", "email+rediss", "email+redis+cluster", "email+rediss+cluster"), _STORE),
)
