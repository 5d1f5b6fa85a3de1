"""The options of stores as Spark's users spell them: ``s3.NAME``, ``store.NAME``, and Hadoop's ``fs.s3a.*``."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from litelog.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIXES = ("s3.", "store.")
"""What an option of the store itself begins with. Behind it: its name, as in the configuration."""

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
"""Hadoop's name, and ours."""

SSL = "fs.s3a.connection.ssl.enabled"
"""Whether an endpoint without a scheme is https (Hadoop's default) or http."""

PROVIDER = "fs.s3a.aws.credentials.provider"
"""Only the one for anonymous requests is understood: all others are found as every AWS program finds them."""

ANONYMOUS = "AnonymousAWSCredentialsProvider"

ALIASES = {"path-style-access": "path-style"}
"""Names that others have for our options."""

NO_TABLE = "Spark keeps no options for a table of a catalog"
"""So one that was made of columns alone can neither be read nor be written: nothing says where it is."""

_SYNONYMS = ("s3a://", "s3n://")


def replica_url(path: str) -> str:
    """``path`` as litelog spells it: ``s3a://`` and ``s3n://`` are ``s3://``, as everywhere in Spark."""
    text = path.strip()
    for scheme in _SYNONYMS:
        if text.lower().startswith(scheme):
            return "s3://" + text[len(scheme) :]
    return text


def read_store_options(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """(the stores' options by litelog's names, all other options), their names in lower case.

    An option of litelog's own spelling wins over Hadoop's. ConfigError for one of Hadoop's that is not understood.
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
                raise ConfigError(f"litelog knows {name}=...{ANONYMOUS} alone: leave it out, or give keys as options")
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
