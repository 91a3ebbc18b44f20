"""Unfinished uploads: ends the uploads in parts that killed processes have left in a bucket of S3.

Rule: `obstore` can end an upload only while it has it open, so another library, `botocore`, sends
these requests, and nothing else does. It is loaded when the first of them is needed, which is after
a broken attempt or for a check, and calls run in a thread of their own. A server that does not know
these requests, or refuses them, has no unfinished uploads as far as can be known: the log says so.
Must not know: what is uploaded. Decision: docs/decisions/0049-botocore.md.
"""

import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from kledger.ledger.errors import TierUnavailable
from kledger.runtime.blocking import BlockingPool

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 3
READ_TIMEOUT_S = 10
"""Short, as closing the store waits for a request in flight."""
DEFAULT_REGION = "us-east-1"
REFUSALS = frozenset({403, 405, 501})
"""Statuses of a server that does not allow or know these requests."""


class UnfinishedUploads:
    """Those below the URL of a store in S3; all names are relative to it."""

    def __init__(self, url: str, options: Mapping[str, object]) -> None:
        """Make one; nothing is loaded or sent.

        Args:
            url: `s3://bucket/prefix`.
            options: of the store, checked.
        """
        parts = urlsplit(url)
        self._url = url
        self._bucket = parts.netloc
        self._prefix = f"{parts.path.strip('/')}/" if parts.path.strip("/") else ""
        self._options = dict(options)
        self._pool: BlockingPool | None = None
        self._client: Any = None
        self._certificates: Path | None = None
        self._is_refused = False

    async def abort(self, name: str) -> None:
        """End all unfinished uploads of one object; their parts go.

        Raises:
            TierUnavailable: there may be some left.
        """
        await self._run(self._abort, self._prefix + name)

    async def names(self, prefix: str = "") -> list[str]:
        """Return the objects of which there are unfinished uploads, below a prefix.

        Raises:
            TierUnavailable.
        """
        found = await self._run(self._uploads, self._prefix + prefix)
        return sorted({key.removeprefix(self._prefix) for key, _ in found})

    def close(self) -> None:
        """End the thread. May be repeated."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        if self._certificates is not None:
            self._certificates.unlink(missing_ok=True)
            self._certificates = None

    async def _run(self, call: Callable[[str], Any], name: str) -> Any:
        self._pool = self._pool or BlockingPool(1)
        return await self._pool.run(self._translated, call, name)

    # In the thread

    def _translated(self, call: Callable[[str], Any], name: str) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - see the rule

        try:
            return call(name)
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            if status == 404:  # there is no such bucket
                return []
            if status in REFUSALS:
                self._refused(error)
                return []
            raise TierUnavailable(f"unfinished uploads in {self._url}: {error}") from None
        except BotoCoreError as error:
            raise TierUnavailable(f"unfinished uploads in {self._url}: {error}") from None

    def _refused(self, error: Exception) -> None:
        if not self._is_refused:
            self._is_refused = True
            logger.warning(
                "unfinished uploads in %s are left to a rule of the bucket, since the server "
                "refuses to list or end them: %s",
                self._url, error,
            )  # fmt: skip

    def _abort(self, key: str) -> None:
        client = self._made()
        for found, upload_id in self._uploads(key):
            if found == key:
                with suppress(client.exceptions.NoSuchUpload):  # another call was faster
                    client.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload_id)

    def _uploads(self, prefix: str) -> list[tuple[str, str]]:
        """Return key and id of each unfinished upload whose key begins with a prefix."""
        pages = self._made().get_paginator("list_multipart_uploads")
        return [
            (each["Key"], each["UploadId"])
            for page in pages.paginate(Bucket=self._bucket, Prefix=prefix)
            for each in page.get("Uploads", ())
        ]

    def _made(self) -> Any:
        if self._client is None:
            from botocore.session import Session  # noqa: PLC0415 - see the rule

            arguments = client_arguments(self._bucket, self._options, os.environ)
            if "-----BEGIN" in str(arguments.get("verify", "")):
                arguments["verify"] = self._certificates_file(str(arguments["verify"]))
            self._client = Session().create_client("s3", **arguments)
        return self._client

    def _certificates_file(self, certificates: str) -> str:
        """Return the path of a file with certificates, as the library takes no text."""
        with tempfile.NamedTemporaryFile("w", suffix=".pem", delete=False) as file:
            file.write(certificates)
        self._certificates = Path(file.name)
        return file.name


def client_arguments(
    bucket: str, options: Mapping[str, object], environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return the arguments of a client of botocore that reaches the same store as obstore.

    Credentials that are no options are found by either library in the same way.

    Args:
        bucket: of the URL.
        options: by the names of obstore.
        environment: variables that obstore reads and botocore does not.
    """
    from botocore import UNSIGNED  # noqa: PLC0415 - see the rule
    from botocore.config import Config  # noqa: PLC0415 - see the rule

    endpoint = (
        options.get("aws_endpoint_url_s3")
        or options.get("endpoint")
        or environment.get("AWS_ENDPOINT")
    )
    is_virtual = _is_true(options, "virtual_hosted_style_request")
    if endpoint and is_virtual:
        # For obstore the bucket is a part of such an endpoint, botocore adds it.
        parts = urlsplit(str(endpoint))
        host = parts.netloc.removeprefix(f"{bucket}.")
        endpoint = urlunsplit(parts._replace(netloc=host))
    proxy = options.get("proxy_url")
    config = Config(
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        retries={"total_max_attempts": 1},
        proxies={"http": proxy, "https": proxy} if proxy else None,
        s3={"addressing_style": "virtual" if is_virtual else "path"} if endpoint else None,
        signature_version=UNSIGNED if _is_true(options, "skip_signature") else None,
    )
    arguments: dict[str, Any] = {
        "config": config,
        "endpoint_url": endpoint,
        "region_name": options.get("region")
        or options.get("default_region")
        or environment.get("AWS_REGION")
        or environment.get("AWS_DEFAULT_REGION")
        or DEFAULT_REGION,
        "aws_access_key_id": options.get("access_key_id"),
        "aws_secret_access_key": options.get("secret_access_key"),
        "aws_session_token": options.get("session_token"),
        "verify": options.get("root_certificate"),
    }
    if _is_true(options, "allow_invalid_certificates"):
        arguments["verify"] = False
    return {name: value for name, value in arguments.items() if value is not None}


def _is_true(options: Mapping[str, object], name: str) -> bool:
    return str(options.get(name, "")).lower() == "true"
