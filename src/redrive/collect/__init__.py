"""Bring dead messages that lie in a broker into a store, whoever wrote them there.

collector.py   receive, record, acknowledge: in that order, batch by batch
foreign.py     a letter from what little another system says of a failure
kafka.py       Spring's, Kafka Connect's, the tickets' and Redrive's own dead-letter topics
pipeline.py    DlqMessages of a pipeline, whichever engine wrote them
rabbitmq.py    x-death, and what Redrive has parked
"""

from redrive.collect.collector import Collector, Reader

__all__ = ["Collector", "Reader"]
