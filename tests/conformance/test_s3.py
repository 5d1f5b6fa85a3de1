"""The S3 store behaves as every store does, over HTTP, in one request and in parts. The server is moto."""

from __future__ import annotations

import pytest

pytest.importorskip("boto3")
pytest.importorskip("moto.server")

from tests.builders.s3_suites import S3ClientSuite, S3StoreInPartsSuite, S3StoreSuite
from tests.sampling import times


class TestS3Store(S3StoreSuite):
    """Over moto, in one request."""

    large_bytes = 4 << 20
    many = times(50, at_night=S3StoreSuite.many)  # an owner's trial of a store lists three pages in each run


class TestS3StoreInParts(S3StoreInPartsSuite):
    """Over moto, in parts. The server in this process keeps several copies of each object."""

    large_bytes = 7 << 20  # two parts; as a stream, which begins with small buffers, three
    many = 50  # at night the suite above lists as many pages and batches


class TestS3Client(S3ClientSuite):
    """Over moto."""
