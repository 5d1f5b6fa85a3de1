"""The format of the topics of InfluxDB 0.9's broker."""

from litelog.formats.influxdb.format import InfluxdbFormat

__all__ = ["InfluxdbFormat"]
