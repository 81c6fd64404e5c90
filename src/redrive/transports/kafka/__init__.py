"""Kafka as a transport; transport.py is where to begin. Needs the extra `kafka`."""
