"""The OpenAPI document of the HTTP API: ``GET /openapi.json`` and ``python -m litelog.server.openapi``.

A test compares it with the routes.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from litelog.consumers.administration import ConsumerState
from litelog.dataclass import dataclass
from litelog.formats.columns import NAMES
from litelog.formats.log_format import MAX_SEQUENCE
from litelog.live.encoding import ENCODINGS
from litelog.live.held_records import HeldRecords
from litelog.live.mirrors import MirrorStatus
from litelog.live.served_log import LogFacts
from litelog.objects.consumer_position import MOST_MOVE
from litelog.objects.position import GIVEN_POSITION
from litelog.objects.wal_stream import BEFORE_HEADER, DIGEST, SEGMENT_BEFORE, SEGMENT_HEADER
from litelog.server.log_requests import MIRROR
from litelog.server.report import VERSION, StatusReport, SyncReport
from litelog.verify.local_report import LocalAnomalyKind
from litelog.version import VERSION as RELEASE

if TYPE_CHECKING:
    from collections.abc import Mapping

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0, "maximum": MAX_SEQUENCE}
SWITCH: Schema = {"type": "string", "enum": ["true", "false", "1", "0"]}
DURATION: Schema = {"type": "string", "pattern": "^[0-9]{1,3}(ms|s)$", "examples": ["30s"]}
POSITION: Schema = {"type": "string", "pattern": "^[0-9a-f]{16}/[0-9a-f]{16}/[0-9a-f]{16}$"}
START: Schema = {
    "anyOf": [
        COUNT,
        {"type": "string", "enum": ["earliest", "latest", "end", "beginning", "oldest", "now"]},
        {"type": "string", "pattern": "^[1-9][0-9]{0,2}(s|min|h|day|week|month|year)$", "examples": ["1day"]},
        {"type": "string", "pattern": "^20[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T[0-1][0-9]:[0-5][0-9]:00Z$"},
        {"type": "string", "pattern": "^consumer:[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"},
    ]
}
COLUMNS: Schema = {
    "type": "array",
    "items": {"type": "string", "enum": list(NAMES)},
    "uniqueItems": True,
    "minItems": 1,
}
JSON = "application/json"
BYTES = "application/octet-stream"

_REFERENCES = "#/components/schemas/{model}"
_ERROR = {
    "type": "object",
    "required": ["version", "error"],
    "properties": {
        "version": {"const": VERSION},
        "error": {
            "type": "object",
            "required": ["kind", "message", "http_status"],
            "properties": {
                "kind": TEXT,
                "message": {**TEXT, "description": "What is wrong, and what to do."},
                "http_status": {"type": "integer"},
                "next": {**COUNT, "description": "With 410: the sequence of the next record that is there."},
                "next_position": {
                    "type": ["string", "null"],
                    "description": "With 410 of wal: the next position that is there; null if there is none.",
                },
            },
        },
    },
}
_HEALTH = {
    "type": "object",
    "required": ["status"],
    "properties": {
        "status": {"enum": ["ok", "failing"]},
        "verdict": TEXT,
        "reasons": {"type": "array", "items": {"type": "object"}},
    },
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an operation."""

    name: str
    schema: Schema
    meaning: str
    place: str = "query"
    required: bool = False

    def document(self) -> Schema:
        found: Schema = {"name": self.name, "in": self.place, "description": self.meaning, "schema": self.schema}
        if self.schema is COLUMNS:
            found.update(style="form", explode=False)
        return {**found, "required": True} if self.required else found


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of a path."""

    method: str
    path: str
    summary: str
    answers: Mapping[int, Mapping[str, Schema]]
    """By status: the schema of each media type. The other statuses are errors."""
    parameters: tuple[Parameter, ...] = ()
    errors: tuple[int, ...] = ()
    body: Schema | None = None
    """The JSON that the request states."""

    def document(self) -> Schema:
        error = {JSON: {"schema": {"$ref": _REFERENCES.format(model="Error")}}}
        responses = {
            str(status): {"description": "done" if status < 300 else "the answer is no", "content": _content(kinds)}
            for status, kinds in self.answers.items()
        }
        for status in (400, 401, 403, 413, 421, *self.errors):
            responses.setdefault(str(status), {"description": "an error", "content": error})
        name = self.path.strip("/").replace("{", "").replace("}", "").replace("/", "-") or "page"
        found: Schema = {"summary": self.summary, "operationId": f"{self.method}-{name}", "responses": responses}
        parameters = [each.document() for each in self.parameters]
        if self.body is not None:
            found["requestBody"] = {"required": True, "content": {JSON: {"schema": self.body}}}
        return {**found, "parameters": parameters} if parameters else found


def _content(kinds: Mapping[str, Schema]) -> Schema:
    return {kind: {"schema": schema} for kind, schema in kinds.items()}


_LOG = Parameter("log", {**TEXT, "minLength": 1}, "The log's name, as /logs lists it.", "path", required=True)
_KEY = Parameter("key", {**TEXT, "minLength": 1}, "The object's key.", "path", required=True)
_WAIT = Parameter("wait", DURATION, "Without follow: how long to wait for the first data, at most 600s.")
_FOLLOW = Parameter("follow", SWITCH, "Continue with new data until the client disconnects.")
_RANGE = Parameter("Range", {**TEXT, "pattern": "^bytes=[0-9]{1,9}-$"}, "The bytes that are asked for.", "header")
_FACTS = TypeAdapter(LogFacts).json_schema(ref_template=_REFERENCES)
_HELD = TypeAdapter(HeldRecords).json_schema(ref_template=_REFERENCES)
_READER = {"type": "object", "required": ["kind", "seconds", "next", "sent_bytes"]}
_MIRRORS: Schema = {"type": "array", "items": TypeAdapter(MirrorStatus).json_schema(ref_template=_REFERENCES)}
_MOVED: Schema = {**TEXT, "description": "When it was moved, in ISO 8601."}
_STATE = TypeAdapter(ConsumerState).json_schema(ref_template=_REFERENCES)
_CONSUMER_STATE: Schema = {
    **_STATE,
    "properties": {**_STATE["properties"], "updated": {**_MOVED, "type": ["string", "null"]}},
}
_ONE_LOG: Schema = {
    "type": "object",
    "required": [
        *("version", "readers", "mirrors", "consumers", "sent_bytes"),
        *(set(_FACTS["required"]) - {"readers"}),
        *_HELD["properties"],
    ],
    "properties": {
        **_FACTS["properties"],
        **_HELD["properties"],
        "version": {"const": VERSION},
        "sent_bytes": COUNT,
        "readers": {"type": "array", "items": _READER},
        "mirrors": _MIRRORS,
        "consumers": {"type": "array", "items": _CONSUMER_STATE},
    },
}
_LISTING: Schema = {
    "type": "object",
    "required": ["version", "objects"],
    "properties": {"version": {"const": VERSION}, "objects": {"type": "array", "items": {"type": "array"}}},
}
_ALL_LOGS: Schema = {
    "type": "object",
    "required": ["version", "revision", "logs"],
    "properties": {
        "version": {"const": VERSION},
        "revision": {**TEXT, "description": "It changes when logs are added or removed."},
        "logs": {"type": "array", "items": _FACTS},
    },
}
_WAITED: Schema = {
    "type": "object",
    "required": ["version", "next", "mirrors"],
    "properties": {
        "version": {"const": VERSION},
        "next": {
            "anyOf": [COUNT, {"type": "null"}],
            "description": "The highest sequence before which a mirror has all records durably; null if there is none.",
        },
        "mirrors": _MIRRORS,
    },
}
_CHECKED: Schema = {
    "type": "object",
    "required": [
        *("version", "log", "format", "log_segments", "log_bytes", "commits", "records", "first", "next"),
        *("anomalies", "anomaly_counts", "harmful_count", "unreadable", "unreadable_count", "seconds"),
    ],
    "properties": {
        "version": {"const": VERSION},
        "anomalies": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["kind", "file", "offset", "end", "sequence", "expected", "actual", "message", "harmful"],
                "properties": {"kind": {"enum": [str(kind) for kind in LocalAnomalyKind]}, "offset": COUNT},
            },
        },
        "anomaly_counts": {"type": "object", "additionalProperties": COUNT},
        "harmful_count": {**COUNT, "description": "How many anomalies a reader may meet."},
        "unreadable": {"type": "array", "items": TEXT, "description": "Log segments that could not be read."},
    },
}
_READING = (404, 429, 500, 502, 503)
_CONSUMER = Parameter(
    "consumer",
    {**TEXT, "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"},
    "The consumer's name.",
    "path",
    required=True,
)
_EVIDENCE: Schema = {
    "type": ["object", "null"],
    "description": "The newest record before next that the consumer knows.",
    "required": ["sequence", "size", "crc"],
    "properties": {
        "sequence": COUNT,
        "size": {**COUNT, "minimum": 1},
        "crc": {"type": "integer", "minimum": 0, "maximum": 0xFFFFFFFF},
    },
}
_NEXT: Schema = {
    **COUNT,
    "type": ["integer", "null"],
    "description": "The first sequence that is not processed; null: the first record of the log.",
}
_MOVE_ID: Schema = {
    "type": ["string", "null"],
    "minLength": 1,
    "maxLength": MOST_MOVE,
    "description": "An id of the move, by which its sender recognises it.",
}
_POSITION_FIELDS: Schema = {"next": _NEXT, "evidence": _EVIDENCE, "move": _MOVE_ID}
_CONSUMER_POSITION: Schema = {
    "type": "object",
    "required": ["version", "consumer", "revision", "next", "updated", "evidence", "move"],
    "properties": {
        "version": {"const": VERSION},
        "consumer": TEXT,
        "revision": {**COUNT, "description": "Rises with each move."},
        "updated": _MOVED,
        **_POSITION_FIELDS,
    },
}
_CONSUMER_MOVE: Schema = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "revision": {
            **COUNT,
            "type": ["integer", "null"],
            "description": "The revision that the position has now, 0 for a new consumer; null: move it in any case.",
        },
        **_POSITION_FIELDS,
    },
}
_CONSUMER_DELETED: Schema = {
    "type": "object",
    "required": ["version", "consumer", "deleted"],
    "properties": {
        "version": {"const": VERSION},
        "consumer": TEXT,
        "deleted": {"type": "boolean", "description": "Whether there was one."},
    },
}
_ALL_CONSUMERS: Schema = {
    "type": "object",
    "required": ["version", "consumers"],
    "properties": {
        "version": {"const": VERSION},
        "consumers": {"type": "array", "items": _CONSUMER_STATE},
    },
}

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "get",
        "/",
        "The page: whether everything is safe, and every log.",
        {200: {"text/html": TEXT}},
        (
            Parameter("q", TEXT, "Only the logs whose folder, replica or state contains this."),
            Parameter("from", COUNT, "The number of logs to skip."),
        ),
    ),
    Operation(
        "get",
        "/status",
        "The status of all logs and replicas.",
        {200: {JSON: {"$ref": _REFERENCES.format(model="StatusReport")}}},
        (
            Parameter("history", {"enum": ["0", "1"]}, "1: also the lag of the last hour."),
            Parameter("log", TEXT, "Only the log in this folder."),
        ),
        (404,),
    ),
    Operation(
        "get",
        "/metrics",
        "The metrics, for Prometheus.",
        {200: {"text/plain": TEXT, "application/openmetrics-text": TEXT}},
    ),
    *(
        Operation(
            "get", path, f"{question} The status code is the answer.", {200: {JSON: _HEALTH}, 503: {JSON: _HEALTH}}
        )
        for path, question in (
            ("/healthz", "Is everything safe?"),
            ("/readyz", "Has the daemon started?"),
            ("/livez", "Does the daemon run?"),
        )
    ),
    Operation(
        "post",
        "/sync",
        "Wait until everything that the logs hold now is durable in their replicas.",
        {status: {JSON: {"$ref": _REFERENCES.format(model="SyncReport")}} for status in (200, 504)},
        (
            Parameter("wait", DURATION, "How long to wait, at most 600s."),
            Parameter("log", TEXT, "Only the log in this folder."),
            Parameter("replica", TEXT, "Only the replica with this URL."),
        ),
        (404, 503),
    ),
    Operation("get", "/openapi.json", "This document.", {200: {JSON: {"type": "object"}}}),
    Operation(
        "get",
        "/logs",
        "The served logs, with their facts.",
        {200: {JSON: _ALL_LOGS}},
        (
            Parameter("revision", TEXT, "The revision of an earlier answer: answer once it has changed."),
            Parameter("wait", DURATION, "With revision: how long to wait for a change, at most 600s."),
        ),
        (503,),
    ),
    Operation("get", "/logs/{log}", "One served log, and who reads it.", {200: {JSON: _ONE_LOG}}, (_LOG,), (404, 503)),
    Operation(
        "get",
        "/logs/{log}/records",
        "The log's records, as a stream in the form that the Accept header chooses.",
        {200: dict.fromkeys(ENCODINGS, TEXT)},
        (
            _LOG,
            Parameter("from", START, "Where to begin: a sequence, a word, a time, a duration back, or a consumer."),
            Parameter("to", COUNT, "The first sequence that is not sent."),
            _FOLLOW,
            _WAIT,
            Parameter("limit", COUNT, "The most records."),
            Parameter("columns", COLUMNS, "The columns that are sent."),
            Parameter("Last-Event-ID", COUNT, "The last sequence that the client got, instead of from.", "header"),
        ),
        (*_READING, 406, 409, 410),
    ),
    Operation(
        "get",
        "/logs/{log}/records/{sequence}",
        "One record.",
        {200: {JSON: {"type": "object", "required": list(NAMES)}}},
        (_LOG, Parameter("sequence", COUNT, "The record's sequence.", "path", required=True)),
        (*_READING, 409, 410),
    ),
    Operation(
        "get",
        "/logs/{log}/consumers",
        "The log's consumers, with their lag.",
        {200: {JSON: _ALL_CONSUMERS}},
        (_LOG,),
        (404, 500, 503),
    ),
    *(
        Operation(
            method,
            "/logs/{log}/consumers/{consumer}",
            summary,
            {200: {JSON: answer}},
            (_LOG, _CONSUMER),
            (404, 409, 500, 503),
            _CONSUMER_MOVE if method == "put" else None,
        )
        for method, summary, answer in (
            ("get", "The position of a consumer.", _CONSUMER_POSITION),
            ("put", "Move a consumer, if its position has the stated revision.", _CONSUMER_POSITION),
            ("delete", "Delete the position of a consumer.", _CONSUMER_DELETED),
        )
    ),
    Operation(
        "get",
        "/logs/{log}/wal",
        "The log's bytes, as a stream of WAL segments.",
        {200: {BYTES: TEXT}},
        (
            _LOG,
            Parameter(
                "from",
                {**TEXT, "pattern": f"^{GIVEN_POSITION.pattern}$"},
                "Where the first WAL segment begins: at a commit. Leading zeros of index and offset may be left out.",
                required=True,
            ),
            _FOLLOW,
            _WAIT,
            Parameter("limit", COUNT, "End after about this many bytes."),
            Parameter("mirror", {**TEXT, "pattern": f"^{MIRROR.pattern}$"}, "The name of the mirror that asks."),
            Parameter(
                BEFORE_HEADER,
                {**TEXT, "pattern": f"^{DIGEST.pattern}$"},
                "SHA-256 of the last 4,096 bytes that the mirror has before the position in its log segment.",
                "header",
            ),
            Parameter(
                SEGMENT_HEADER,
                {**TEXT, "pattern": f"^{SEGMENT_BEFORE.pattern}$"},
                "Of the log segment before: SHA-256 of its last 4,096 bytes, its size, and its name, percent-encoded.",
                "header",
            ),
        ),
        (*_READING, 409, 410),
    ),
    Operation(
        "get",
        "/logs/{log}/check",
        "A check of the log's own files: the report of litelog verify LOG_DIR.",
        {200: {JSON: _CHECKED}},
        (_LOG,),
        (404, 429, 500, 503),
    ),
    Operation(
        "get",
        "/logs/{log}/mirrors",
        "The log's mirrors, once any of them has reached a sequence.",
        {200: {JSON: _WAITED}},
        (
            _LOG,
            Parameter("sequence", COUNT, "A mirror has to have all records before this sequence durably."),
            Parameter("wait", DURATION, "How long to wait for that, at most 600s."),
        ),
        (404, 503),
    ),
    Operation(
        "get",
        "/logs/{log}/replica",
        "A page of the objects of the log's replica.",
        {200: {JSON: _LISTING}},
        (
            _LOG,
            Parameter("prefix", TEXT, "How the keys begin."),
            Parameter("start-after", TEXT, "Only keys after this one."),
            Parameter("limit", COUNT, "The most objects; at most 1,000 are listed."),
        ),
        _READING,
    ),
    *(
        Operation(
            method,
            "/logs/{log}/replica/{key}",
            summary,
            {200: {BYTES: TEXT}, 206: {BYTES: TEXT}},
            (_LOG, _KEY, _RANGE, Parameter("wait", DURATION, "For a WAL segment: how long to wait for it.")),
            _READING,
        )
        for method, summary in (("get", "An object of the log's replica."), ("head", "Whether the object is there."))
    ),
)


def make_openapi() -> Schema:
    """The document, as JSON values."""
    paths: dict[str, Schema] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = operation.document()
    schemas: Schema = {"Error": _ERROR}
    for model in (StatusReport, SyncReport):
        schema = model.model_json_schema(ref_template=_REFERENCES, mode="serialization")
        schemas.update(schema.pop("$defs", {}))
        schemas[model.__name__] = schema
    return {
        "openapi": "3.1.0",
        "info": {"title": "litelog", "version": RELEASE, "description": "The daemon, and the logs that it serves."},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}, {}],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(make_openapi(), indent=1) + "\n")
