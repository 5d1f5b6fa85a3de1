"""Libraries whose debug logs show what they send, tokens and keys among it, are kept from logging that."""

from __future__ import annotations

import logging

_TALKATIVE = (
    *("boto3", "botocore", "s3transfer", "urllib3", "aiobotocore", "aiohttp", "requests", "requests_oauthlib"),
    *("fsspec", "s3fs", "gcsfs", "adlfs", "azure", "google", "paramiko", "smbprotocol", "huggingface_hub", "webdav4"),
    *("httpx", "httpcore", "asyncio", "msal"),
)


def silence_secrets() -> None:
    """Have them log warnings only.

    Whoever wants more sets their level; a root logger at DEBUG is no such wish.
    """
    for name in _TALKATIVE:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)
