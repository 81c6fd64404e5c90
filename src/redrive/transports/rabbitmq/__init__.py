"""RabbitMQ: the topology of queues with their retry and dead-letter parts."""
