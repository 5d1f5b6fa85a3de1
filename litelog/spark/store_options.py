"""The options of stores as Spark's users write them: ``s3.NAME``, ``store.NAME``, and Hadoop's ``fs.s3a.*``, which
a session may have."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from litelog.encryption.identities import OPTION
from litelog.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


PREFIXES = ("s3.", "store.")
"""Prefixes of an option for the store itself. The rest is the option's name, as in the configuration."""

SPARK_PREFIX = "spark.hadoop."
HADOOP_PREFIX = "fs.s3a."

HADOOP = {
    "fs.s3a.access.key": "access-key-id",
    "fs.s3a.secret.key": "secret-access-key",
    "fs.s3a.session.token": "session-token",
    "fs.s3a.endpoint": "endpoint",
    "fs.s3a.endpoint.region": "region",
    "fs.s3a.path.style.access": "path-style",
}
"""Hadoop's names to litelog's names."""

SSL = "fs.s3a.connection.ssl.enabled"
"""Whether an endpoint without a scheme is https (Hadoop's default) or http."""

PROVIDER = "fs.s3a.aws.credentials.provider"
"""Only the provider for anonymous requests is supported. Other credentials come from the usual AWS provider chain."""

ANONYMOUS = "AnonymousAWSCredentialsProvider"

ALIASES = {"path-style-access": "path-style"}
"""Names that other programs use for litelog's options."""

IDENTITY = "identityfile"
"""``identityFile``, without a prefix, as it belongs to the replica and not to one kind of store."""

NO_TABLE = "Spark keeps no options for a table of a catalog"
"""Spark does not store the location of a table that was created from columns alone, so nothing can be read or written
there."""

_SYNONYMS = ("s3a://", "s3n://")


def replica_url(path: str) -> str:
    """``path`` with ``s3a://`` and ``s3n://`` replaced by ``s3://``: Spark treats all three alike."""
    text = path.strip()
    for scheme in _SYNONYMS:
        if text.lower().startswith(scheme):
            return "s3://" + text[len(scheme) :]
    return text


def read_store_options(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split options into (the stores' options by litelog's names, all other options), with names in lower case.

    litelog's own spelling wins over Hadoop's. Raises ConfigError for an option of Hadoop's that is not supported.
    """
    own: dict[str, str] = {}
    hadoop: dict[str, str] = {}
    others: dict[str, str] = {}
    for name, value in given.items():
        spelled = name.lower().removeprefix(SPARK_PREFIX)
        prefix = next((prefix for prefix in PREFIXES if spelled.startswith(prefix)), None)
        if prefix is not None:
            rest = spelled.removeprefix(prefix)
            own[ALIASES.get(rest, rest)] = value
        elif spelled == IDENTITY:
            own[OPTION] = value
        elif spelled.startswith(HADOOP_PREFIX):
            hadoop[spelled] = value
        else:
            others[spelled] = value
    return _translate(hadoop) | own, others


def _translate(hadoop: Mapping[str, str]) -> dict[str, str]:
    """Hadoop's options by litelog's names."""
    found: dict[str, str] = {}
    for name, value in hadoop.items():
        if name in HADOOP:
            found[HADOOP[name]] = value
        elif name == PROVIDER:
            if not value.strip().endswith(ANONYMOUS):
                raise ConfigError(f"litelog supports only {name}=...{ANONYMOUS}: leave it out, or give keys as options")
            found["anonymous"] = "true"
        elif name != SSL:
            known = [*HADOOP, PROVIDER, SSL]
            near = difflib.get_close_matches(name, known, 1, 0.5)
            advice = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"litelog does not know {name}{advice} (it knows {', '.join(known)})")
    if "endpoint" in found and "://" not in found["endpoint"]:
        secure = hadoop.get(SSL, "true").lower() != "false"
        found["endpoint"] = f"{'https' if secure else 'http'}://{found['endpoint']}"
    return found


_DEFAULTS = "core-default.xml"
"""The source that Hadoop names for a value that was not set."""


def s3_options(spark: Any, bucket: str | None = None) -> dict[str, str]:
    """Return the settings ``spark.hadoop.fs.s3a.*`` for S3 as options of a read, a write or a stream.

    Works over Spark Connect. ``explain``, the event log and a stream's checkpoint do not show options. SQL text is
    shown, so do not write these options into it.

    Args:
        spark: the SparkSession.
        bucket: bucket whose own settings (``fs.s3a.bucket.NAME.*``) take precedence, as in Hadoop.

    Returns:
        Options to pass as ``.options(**found)``. Empty if Spark has no such setting: then the driver and each executor
        use the provider chain (environment, profile, the machine's role).
    """
    found: dict[str, str] = {}
    for name in (*HADOOP, SSL):
        names = [name] if bucket is None else [name.replace("fs.s3a.", f"fs.s3a.bucket.{bucket}.", 1), name]
        value = next((held for held in (_setting(spark, spelled) for spelled in names) if held), None)
        if value is not None:
            found[name] = value
    store, _ = read_store_options(found)
    return {f"s3.{name}": value for name, value in store.items()}


def _setting(spark: Any, name: str) -> str | None:
    """A Hadoop setting, from Spark's configuration or, if the session has one, Hadoop's."""
    value = spark.conf.get(SPARK_PREFIX + name, None) or spark.conf.get(name, None)
    if value is None and (java := getattr(spark, "_jsc", None)) is not None:
        hadoop = java.hadoopConfiguration()
        sources = hadoop.getPropertySources(name)
        if sources and list(sources) != [_DEFAULTS]:
            value = hadoop.get(name)
    return None if value is None else str(value)
