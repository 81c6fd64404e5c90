"""The descriptor of workflows: where a replay finds their failed tasks."""

from redrive.systems.base import System

_TRANSPORT = "redrive.systems.workflow.transport:open_transport"
_STORE = "redrive.systems.workflow.stores:open_store"

system = System(
    name="workflow",
    about="Failed workflow tasks in a process of yours: alert rules",
    rules="redrive.systems.workflow:rules.yml",
    panels="redrive.systems.workflow.panels:ROW",
    transports=dict.fromkeys(("workflow+sqlite", "workflow+opensearch", "workflow+opensearch+https"), _TRANSPORT),
    stores=dict.fromkeys(("workflow+opensearch", "workflow+opensearch+https"), _STORE),
)
