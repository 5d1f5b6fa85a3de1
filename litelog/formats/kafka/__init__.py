"""The format of Apache Kafka's partitions."""

from litelog.formats.kafka.format import KafkaFormat

__all__ = ["KafkaFormat"]
