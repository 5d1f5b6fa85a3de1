"""Generates the reference of the HTTP API from the code: ``python -m litelog.server.reference``."""

from __future__ import annotations

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

_HEAD = """# What the daemon tells over HTTP

Made by `python -m litelog.server.reference`; a test fails where it differs from the code.

The daemon listens at `addr` (default `127.0.0.1:9977`; `unix:/path`, with mode 0660; or `off`) where the extra `server`
is installed. If the default address is taken, or the extra is not installed, it says so and replicates without; with an
`addr` that is configured it does not start. An address that other machines can reach needs a `token-file`, and every
request `Authorization: Bearer TOKEN`; a browser asks for it at `/`: any user name, and the token as the password, which
opens all that is read, and not `/sync`. `/healthz` and `/readyz` then answer without it, yes or no, and no reasons.
Without a token the Host header must name this machine's loopback, the configured address, or one of `allowed-hosts`.

`POST /sync` is the only request that starts anything. It costs requests to the stores, so no web page may send it
unasked. With a token it needs `Authorization: Bearer TOKEN`, which no browser adds by itself. Without one, programs of
this machine may send it (`curl -X POST`), and so may a page of this very address. A browser that asks for any other
page gets 403, also for a page from another port of localhost: an `Origin` header must have the host and port of the
`Host` header, and `Sec-Fetch-Site` must be `same-origin` or `none`. A malformed `Origin` or
`Content-Length`, and an `Accept` that asks for a version which is no number, is 400.

| request | answer |
|---|---|
| `GET /[?q=TEXT][&from=N]` | the page: whether all is safe, and every log; with `q`, those whose folder, replica or \
state holds TEXT; behind the first N |
| `GET /status[?history=1][&log=FOLDER]` | the report below; with the lag of the last hour, and of one log: \
404 where none of that name is replicated; JSON: `error` |
| `GET /metrics` | the metrics below |
| `GET /healthz` | 200, or 503 where a replica lags more than `max-lag`, has failed for longer, was frozen, fenced or \
refused, a log that the configuration means cannot be opened for longer, or a loop has stopped; JSON: `status` (ok or \
failing), `reasons` |
| `GET /readyz` | as `/healthz`; 503 also until every replica was synced once |
| `POST /sync?wait=30s[&log=FOLDER][&replica=URL]` | waits until all that the logs hold at the call is durable in all \
replicas, or the named one, for at most 10m; it rides the next batch |

Limits: 64 connections (for one more, the oldest that waits for its client is closed), \
16 KiB of request line and headers, 10 s for them to arrive, no body above 4 KiB, 16 waits of
`/sync` at a time.

"""


def make_reference() -> str:
    """The document, as Markdown."""
    return _HEAD + "\n".join([*_describe_report(), *_describe_metrics(), *_describe_events()]) + "\n"


def _describe_report() -> Iterator[str]:
    for model in PARTS:
        yield f"## {model.__name__}"
        yield ""
        yield f"{(model.__doc__ or '').strip()}"
        yield ""
        yield "| field | type | meaning |"
        yield "|---|---|---|"
        for name, field in model.model_fields.items():
            yield f"| `{name}` | {_render(field.annotation)} | {field.description} |"
        yield ""


def _describe_metrics() -> Iterator[str]:
    yield "## Metrics"
    yield ""
    yield "Besides these, prometheus-client's `process_` metrics."
    yield ""
    yield "| metric | kind | labels | meaning |"
    yield "|---|---|---|---|"
    for spec in SPECS:
        yield f"| `{spec.name}` | {spec.kind} | {', '.join(spec.labels) or '-'} | {spec.help} |"


def _describe_events() -> Iterator[str]:
    yield ""
    yield "## Log lines"
    yield ""
    yield "As JSON, each has `time`, `level`, `logger`, `message` and `event`; `log`, `replica` and `position` where it"
    yield "is about one; `failures`, how often in a row; and what the event has of its own."
    yield ""
    yield "| event | meaning |"
    yield "|---|---|"
    for name, meaning in EVENTS.items():
        yield f"| `{name}` | {meaning} |"


def _render(annotation: Any) -> str:
    """The type in JSON's terms."""
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
