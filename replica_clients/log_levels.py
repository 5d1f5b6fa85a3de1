"""Stops other libraries from logging requests at debug level, which would show tokens and keys."""

from __future__ import annotations

import logging

_TALKATIVE = (
    *("boto3", "botocore", "s3transfer", "urllib3", "aiobotocore", "aiohttp", "requests", "requests_oauthlib"),
    *("fsspec", "s3fs", "gcsfs", "adlfs", "azure", "google", "paramiko", "smbprotocol", "huggingface_hub", "webdav4"),
    *("httpx", "httpcore", "asyncio", "msal"),
)


def silence_secrets() -> None:
    """Limit these libraries to warnings.

    To see more, set the level of their loggers. A root logger at DEBUG does not have this effect.
    """
    for name in _TALKATIVE:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)
