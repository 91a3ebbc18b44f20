"""Which URLs and options a tier takes, and what is said about others."""

import re
from datetime import timedelta
from importlib.resources import files

import pytest

from kledger.ledger.errors import InvalidArgument
from kledger.ledger.offload.object_store_options import (
    CLIENT_OPTIONS,
    LOCATING_OPTIONS,
    RETRY_OPTIONS,
    SECRET_OPTIONS,
    STORE_OPTIONS,
    checked_options,
    locating_options,
    options_elsewhere,
)

NOT_IN_A_FILE = {"default_headers"}
"""An option that is a table."""


@pytest.mark.parametrize(
    ("module", "structure", "known"),
    [
        ("_aws", "S3Config", STORE_OPTIONS["s3"]),
        ("_gcs", "GCSConfig", STORE_OPTIONS["gs"]),
        ("_azure", "AzureConfig", STORE_OPTIONS["az"]),
        ("_client", "ClientConfig", CLIENT_OPTIONS),
        ("_retry", "RetryConfig", RETRY_OPTIONS | {"backoff"}),
    ],
)
def test_known_names_are_those_of_the_library(module: str, structure: str, known: set[str]) -> None:
    """A new version of the library with other names needs other lists here."""
    text = (files("obstore") / "_store" / f"{module}.pyi").read_text()
    body = re.search(rf"class {structure}\(.*?\n(?=class |\Z)", text, re.DOTALL)
    assert body is not None
    names = set(re.findall(r"^    ([a-z_0-9]+): ", body[0], re.MULTILINE))
    assert names - NOT_IN_A_FILE == known


def test_no_secret_locates_a_store() -> None:
    assert not SECRET_OPTIONS & LOCATING_OPTIONS


def test_options_are_divided() -> None:
    options = checked_options(
        "s3://bucket/prefix",
        {
            "region": "eu",
            "timeout": "5s",
            "allow_http": True,
            "max_retries": 2,
            "retry_timeout": 1.5,
        },
    )
    assert ("s3", {"region": "eu"}) == (options.scheme, options.store)
    assert {"timeout": "5s", "allow_http": True} == options.client
    assert {"max_retries": 2, "retry_timeout": timedelta(seconds=1.5)} == options.retry


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("ftp://x/y", {}, "expected one of s3://bucket/prefix, .*; got the scheme 'ftp'"),
        ("/folder", {}, "got the scheme ''"),
        ("s3:///prefix", {}, "got s3:///prefix"),
        ("file://host/folder", {}, "got file://host/folder"),
        ("file:", {}, "got file:"),
        ("memory://x", {}, "got memory://x"),
        ("s3://key:hidden@bucket", {}, "user names, passwords and queries are options"),
        ("s3://bucket?key=hidden", {}, "user names, passwords and queries are options"),
        ("s3://bucket", {"reigon": "hidden"}, "reigon unknown for s3://, expected .*, region,"),
        ("file:///x", {"region": "hidden"}, r"region unknown for file://, expected .*\(none\)"),
        ("s3://bucket", {"region": ["hidden"]}, "region: expected a text.*, got list"),
        ("s3://bucket", {"endpoint": "http://a:1"}, "http://a:1 .* needs the option allow_http"),
        ("s3://bucket", {"max_retries": -1}, "max_retries: expected a number .*, got -1"),
        ("s3://bucket", {"retry_timeout": "1s"}, "retry_timeout: expected a number .*, got '1s'"),
    ],
)
def test_what_is_wrong_is_said(url: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as raised:
        checked_options(url, options)
    assert "hidden" not in str(raised.value)


def test_options_of_a_store_elsewhere() -> None:
    """Credentials and connections stay, its endpoint and its region are those of the location."""
    options = {"region": "eu", "access_key_id": "key", "timeout": "5s"}
    assert {"region": "eu"} == locating_options(options)
    assert {"access_key_id": "key", "timeout": "5s"} == options_elsewhere("s3://bucket", options)
    assert {"timeout": "5s"} == options_elsewhere("gs://bucket", options)
    assert {} == options_elsewhere("file:///x", options) == options_elsewhere("ftp://x", options)
