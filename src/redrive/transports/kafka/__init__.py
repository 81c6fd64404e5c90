"""Kafka as a transport; transport.py is where to begin. Needs the extra `kafka`."""

from redrive.transports.kafka.transport import KafkaTransport, open_transport

__all__ = ["KafkaTransport", "open_transport"]
