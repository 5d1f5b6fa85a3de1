"""Real HTTP servers for tests: moto's S3, and a server whose answers a test scripts."""

from __future__ import annotations

import io
import json
import logging
import math
import ssl
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

import boto3
from botocore.config import Config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

REGION = "eu-west-1"
ACCESS_KEY_ID, SECRET_ACCESS_KEY = "AKIDOFTHETESTS", "secret-of-the-tests"  # moto accepts any
CREDENTIALS = {"access-key-id": ACCESS_KEY_ID, "secret-access-key": SECRET_ACCESS_KEY}
"""The credentials, as a replica's options."""


@dataclass(slots=True)
class S3Server:
    """A server on this machine, with an administrator's client."""

    endpoint: str
    bundle: str | None = None
    """The file of the authorities that signed its certificate, if they are not well known."""
    _admin: Any = None

    @property
    def admin(self) -> Any:
        """A boto3 client that asks the server directly, without the tested code."""
        if self._admin is None:
            self._admin = boto3.client(
                "s3",
                endpoint_url=self.endpoint,
                verify=self.bundle,
                region_name=REGION,
                aws_access_key_id=ACCESS_KEY_ID,
                aws_secret_access_key=SECRET_ACCESS_KEY,
                config=Config(s3={"addressing_style": "path"}, max_pool_connections=32),
            )
        return self._admin

    def make_bucket(self) -> str:
        """Make an empty bucket; return its name."""
        name = f"bucket-{uuid4().hex}"
        self.admin.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
        return name

    @contextmanager
    def emptied(self) -> Iterator[Self]:
        """Make moto forget at the end of the context the objects that it got in it.

        moto lists every object that it ever made, even after the object was overwritten or deleted."""
        from moto.core.model_instances import reset_model_data
        from moto.s3.models import FakeKey, s3_backends

        held = set(s3_backends.bucket_accounts)
        yield self
        if not held:
            s3_backends.reset()
        for name in set(s3_backends.bucket_accounts) - held:
            partition, account = s3_backends.bucket_accounts.pop(name)
            keys = s3_backends[account][partition].buckets.pop(name).keys
            for version in (version for key in list(keys) for version in keys.getlist(key)):
                if isinstance(version, FakeKey):  # and not a delete marker
                    version.dispose()
        reset_model_data()

    def make_user(self, actions: Iterable[str], bucket: str) -> dict[str, str]:
        """Make a user who may do only these actions in the bucket; return the credentials, as a replica's options."""
        return self.make_user_for(actions, [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"])

    def make_user_for(self, actions: Iterable[str], places: list[str]) -> dict[str, str]:
        """Make a user who may do only these actions with these resources; return the credentials."""
        statement = {"Effect": "Allow", "Action": sorted(actions), "Resource": places}
        return self.make_user_with({"Version": "2012-10-17", "Statement": [statement]})

    def make_user_with(self, policy: Mapping[str, object]) -> dict[str, str]:
        """Make a user with this policy alone; return the credentials, as a replica's options."""
        iam = boto3.client(
            "iam",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY_ID,
            aws_secret_access_key=SECRET_ACCESS_KEY,
        )
        name = f"user-{uuid4().hex}"
        iam.create_user(UserName=name)
        iam.put_user_policy(UserName=name, PolicyName="all", PolicyDocument=json.dumps(policy))
        key = iam.create_access_key(UserName=name)["AccessKey"]
        iam.close()
        return {"access-key-id": key["AccessKeyId"], "secret-access-key": key["SecretAccessKey"]}

    def options(self, **more: object) -> dict[str, object]:
        """A replica's options for this server."""
        trusted = {"ca-bundle": self.bundle} if self.bundle else {}
        return {"endpoint": self.endpoint, "region": REGION, **CREDENTIALS, **trusted, **more}


class OneConditionAtATime:
    """A WSGI application around moto's that handles one conditional write at a time.

    moto looks for a key and then stores it, so a second writer may come in between; in S3 the two are one step. The
    body is read before the lock is taken, so that a hanging request delays no other."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        if "HTTP_IF_NONE_MATCH" not in environ or environ["REQUEST_METHOD"] == "GET":
            return self._inner(environ, start_response)
        environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
        with self._lock:
            return self._inner(environ, start_response)


class ByService:
    """A WSGI application that calls moto's backend for S3, or for IAM if a request is signed for it.

    moto's own dispatcher lists all of its backends on disk for each request, which takes a fifth of the request's
    time."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self._make = make
        self._made: dict[str, Any] = {}
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        scope = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2].partition(",")[0]
        service = "iam" if "/iam/" in scope else "s3"
        with self._lock:
            if service not in self._made:
                self._made[service] = self._make(service)
        return self._made[service](environ, start_response)


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """moto's S3 in a thread of this process, on a free port. It checks no digests, signatures or permissions."""
    from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    class Handler(MotoRequestHandler):
        disable_nagle_algorithm = True

    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line for each request, which pytest would keep
    application = OneConditionAtATime(ByService(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield S3Server(f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def permissions_checked() -> Iterator[None]:
    """Make moto, in this process, check signatures and permissions, as S3 does."""
    with _unchecked_requests(0):
        yield


@contextmanager
def permissions_ignored() -> Iterator[None]:
    """Make moto check none for a while, for what a test does as an administrator."""
    with _unchecked_requests(math.inf):
        yield


@contextmanager
def _unchecked_requests(count: float) -> Iterator[None]:
    from moto import settings

    before = settings.INITIAL_NO_AUTH_ACTION_COUNT
    settings.INITIAL_NO_AUTH_ACTION_COUNT = count
    try:
        yield
    finally:
        settings.INITIAL_NO_AUTH_ACTION_COUNT = before


@dataclass(frozen=True, slots=True)
class Request:
    """A request that a scripted server received. Header names are in lower case."""

    method: str
    path: str
    """The path, with the query."""
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer. ``length``: the Content-Length, if it should differ from the body's length.

    A body with the header Transfer-Encoding gets no length, and is sent unchanged."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None


def error_answer(status: int, code: str, message: str = "as the script says", **headers: str) -> Answer:
    """An error in S3's form. In the names of ``headers``, an underscore stands for a hyphen."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return Answer(status, body.encode(), {name.replace("_", "-"): value for name, value in headers.items()})


def forwarded(endpoint: str, request: Request, bundle: str | None = None) -> Answer:
    """Forward a request to the server at ``endpoint``; return its answer.

    ``bundle``: the file of the authorities to trust, over TLS.
    """
    scheme, _, address = endpoint.partition("://")
    connection = HTTPConnection(address)
    if scheme == "https":
        connection = HTTPSConnection(address, context=ssl.create_default_context(cafile=bundle))
    connection.request(request.method, request.path, request.body, request.headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    own = {"content-length", "connection", "transfer-encoding", "server", "date"}
    return Answer(answer.status, body, {name: value for name, value in answer.getheaders() if name.lower() not in own})


class ScriptedServer:
    """An HTTP server that gets its answers from a function, and keeps the requests."""

    def __init__(self, answer: Callable[[Request], Answer], tls: ssl.SSLContext | None = None) -> None:
        """Start the server. ``tls``: the context for HTTPS; None for HTTP."""
        self.requests: list[Request] = []
        self.connections = 0
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            """Otherwise a body waits for 40 ms, until the client has acknowledged the head."""

            def setup(self) -> None:
                script.connections += 1
                super().setup()

            def handle(self) -> None:
                with suppress(ssl.SSLError, ConnectionError):  # a client that does not trust the server disconnects
                    super().handle()

            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline(65537)
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(int(headers.get("content-length", 0)))
                request = Request(self.command, self.path, headers, body)
                script.requests.append(request)
                self.reply(answer(request))

            def reply(self, said: Answer) -> None:
                self.send_response_only(said.status)
                length = len(said.body) if said.length is None else said.length
                lengths = {} if "Transfer-Encoding" in said.headers else {"Content-Length": str(length)}
                for name, value in {**lengths, **said.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(said.body)
                self.close_connection = self.close_connection or length != len(said.body)

            def log_message(self, *arguments: object) -> None:
                """Log nothing: ``requests`` keeps the requests."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        scheme = "http" if tls is None else "https"
        self.endpoint = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def __enter__(self) -> ScriptedServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
