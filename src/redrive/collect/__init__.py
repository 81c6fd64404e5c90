"""Bring dead messages that lie in a broker into a store, whoever wrote them there.

collector.py   receive, record, acknowledge: in that order, batch by batch
foreign.py     a letter from what little another system says of a failure
formats.py     whose a message is, where a system has a form of its own
joining.py     which letter a message was sent back from that died again elsewhere
kafka.py       Spring's, Kafka Connect's and Redrive's own dead-letter topics
spring.py      what Spring for Apache Kafka says of a failure
dotnet.py      what MassTransit and NServiceBus say of one, in their error queues
rabbitmq.py    x-death, and what Redrive itself has put into dead-letter queues
sqs.py         what a redrive policy of Amazon SQS has moved into a dead-letter queue
aws.py         what Lambda, SNS and EventBridge write into a queue when they give something up
"""

from redrive.collect.collector import Collector, Reader

__all__ = ["Collector", "Reader"]
