"""RabbitMQ: queues with their retry and dead-letter parts, confirmed publishing, competing consumers."""
