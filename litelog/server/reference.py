"""Generates the reference of the HTTP API from the code: ``python -m litelog.server.reference``."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

from litelog.events import EVENTS
from litelog.server.metrics import SPECS
from litelog.server.report import PARTS

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD = """# HTTP API of the daemon

`python -m litelog.server.reference` makes this page. A test fails if it differs from the code.

The daemon listens at `addr`: by default at `127.0.0.1:9977`, or at `unix:/path` (mode 0660), or not at all (`off`). If
the default address is taken, the daemon logs that and replicates without the API. If a configured `addr` cannot be
used, the daemon does not start. With `tls`, it speaks HTTPS, from TLS 1.2 on. It reads the certificate and its key
again after a change: the next connection gets the new one.

An address that other machines can reach needs `token-file` or `tokens`, and each request needs
`Authorization: Bearer TOKEN`. At `/` a browser asks for a password: any user name, and the token as the password. The
password opens all pages for reading, but not `/sync`. Without the token, `/healthz`, `/readyz` and `/livez` answer with
their status code and no reasons. The token of `token-file` permits everything. `tokens` names further tokens with their
rights: `status` (the page, `/status`, `/metrics` and reasons), `read` (the served logs: all, or those in `logs`), and
`consume` (with `read`: to move and delete the consumers of these logs). A request that its token does not permit gets
403. For a log that its token may not read, it gets 404, as for a log that does not exist. If no token is configured,
the Host header must name this machine's loopback, the configured address, or one of `allowed-hosts`.

`POST /sync` is the only request that starts anything. It costs requests to the stores, so pages of other sites may not
send it. If a token is configured, it needs `Authorization: Bearer TOKEN`, which no browser adds by itself. If not,
programs on this machine may send it (`curl -X POST`), and so may a page from the same address. All other pages get 403,
even those from another port of localhost: an `Origin` header must have the host and port of the `Host` header, and
`Sec-Fetch-Site` must be `same-origin` or `none`. The answer to a malformed `Origin` or `Content-Length`, and to an
`Accept` header whose version is not a number, is 400.

| request | answer |
|---|---|
| `GET /[?q=TEXT][&from=N]` | the page: whether everything is safe, and every log; with `q`, only the logs whose \
folder, replica or state contains TEXT; with `from`, those after the first N |
| `GET /status[?history=1][&log=FOLDER]` | the report below; with `history=1`, also the lag of the last hour; with \
`log`, only that log: 404 if no log of that name is replicated |
| `GET /metrics` | the metrics below |
| `GET /healthz` | is everything safe? 200 if the verdict is safe or unknown, 503 if it is late or unsafe; JSON: \
`status` (ok or failing), `verdict`, `reasons` |
| `GET /readyz` | has the daemon started? 503 until it has synced all logs, and while its main loop stands still; \
JSON as above, with the verdict ready or starting |
| `GET /livez` | does the daemon run? 503 if its main loop stands still, which a restart cures; JSON as above, with \
the verdict running or stalled |
| `POST /sync?wait=30s[&log=FOLDER][&replica=URL]` | waits until everything that the logs hold at the call is durable \
in all replicas, or in the named one, for at most 10m; it ships with the next batch |
| `GET /openapi.json` | the requests and answers of this page and of [/logs](live.md#requests), as an OpenAPI document \
for programs |

## The verdict

One function (`litelog/server/verdict.py`) judges all replicas. The page, `/healthz`, `litelog status`, the metrics, the
alerts and the heartbeat all show its result:

| verdict | meaning | `/healthz` | exit code of `litelog status` | `litelog_verdict` | heartbeat |
|---|---|---|---|---|---|
| safe | every replica holds what its log held `max-lag` ago, and no damage is known; there may be warnings | 200 | 0 \
| 0 | sent |
| unknown | the first sync is not done, a log's folder is missing, or no daemon runs; after `max-lag` the first two \
are late or unsafe | 200 | 0 | 1 | withheld |
| late | a replica lags more than `max-lag`, or every sync has failed for that long | 503 | 1 | 2 | withheld |
| unsafe | a replica is damaged, fenced, frozen, refused or was never synced, a log is not replicated, or the daemon \
has stalled | 503 | 1 | 3 | withheld |

Each reason names the object or the place, since when it holds, what to do, and the command to begin with.

Damage stays in the verdict until a verification finds that it is gone. Each verification reads the objects again that
the last one found damaged.

A log that was rewound or rewritten begins a new generation. The replica loses nothing, as the generation before still
holds the earlier data. So this is a warning. It ends after a day, or when you run `litelog dismiss LOG_DIR`, which
writes `dismissed.json` into the replica's state folder. There are other warnings if sealing, a snapshot, a deletion or
a verification failed, or if the log's folder cannot be read.

The page also shows the worst verdict on each replica in each ten minutes of the last 24 hours. `verdicts.json` in the
state folder keeps it over a restart. While no daemon ran, the verdict is unknown.

Ready means that the daemon runs and has synced all logs that exist: every log is complete in one replica, and the
daemon has tried the other replicas. systemd gets the same answer. A log whose folder is missing does not delay it. A
daemon that was ready once stays ready: `/healthz` answers whether everything is safe.

Use `/livez` for checks that restart the daemon (Kubernetes' liveness). A restart cures a loop that stands still, but
neither damage nor a store that does not answer.

A request that is refused is answered with JSON, as verbs print errors ([scripting.md](scripting.md#json)): `error` has
`kind`, `message` and `http_status`. A browser that asks for HTML at a path that does not exist gets text.

Limits: 64 connections, and `max-readers` more if logs are served (one more closes the oldest connection that waits for
its client), 16 KiB of request line and
headers, 10 s for them to arrive, bodies of at most 4 KiB, and 16 waiting calls of `/sync`.

"""


def make_reference() -> str:
    """The document, as Markdown."""
    return _HEAD + "\n".join([*_describe_report(), *_describe_metrics(), *_describe_events()]) + "\n"


def _describe_report() -> Iterator[str]:
    for model in PARTS:
        yield f"## {model.__name__}"
        yield ""
        yield inspect.cleandoc(model.__doc__ or "")
        yield ""
        yield "| field | type | meaning |"
        yield "|---|---|---|"
        for name, field in model.model_fields.items():
            yield f"| `{name}` | {_render(field.annotation)} | {field.description} |"
        yield ""


def _describe_metrics() -> Iterator[str]:
    yield "## Metrics"
    yield ""
    yield "In addition there are the `process_` metrics of prometheus-client."
    yield ""
    yield "| metric | kind | labels | meaning |"
    yield "|---|---|---|---|"
    for spec in SPECS:
        yield f"| `{spec.name}` | {spec.kind} | {', '.join(spec.labels) or '-'} | {spec.help} |"


def _describe_events() -> Iterator[str]:
    yield ""
    yield "## Log lines"
    yield ""
    yield "As JSON, each line has `time`, `level`, `logger`, `message` and `event`. It has `log`, `replica` and"
    yield "`position` if it is about one, and the fields of its event. The names are those of"
    yield "[scripting.md](scripting.md#names)."
    yield ""
    yield "| event | meaning |"
    yield "|---|---|"
    for name, meaning in EVENTS.items():
        yield f"| `{name}` | {meaning} |"


def _render(annotation: Any) -> str:
    """The name of a type in terms of JSON."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        return " or ".join("null" if each is type(None) else _render(each) for each in arguments)
    if origin is list:
        return f"list of {_render(arguments[0])}"
    if origin is dict:
        return f"object: text to {_render(arguments[1])}"
    if origin is Literal:
        return ", ".join(map(str, arguments))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    return {str: "text", int: "integer", float: "number", bool: "boolean"}[annotation]


if __name__ == "__main__":
    sys.stdout.write(make_reference())
