"""Object store options: which URLs and options a tier takes.

Rule: names are those of the library `obstore`, one flat table for the store, its connections and
its retries. An unknown name is refused with the known ones; no message repeats a value.
Must not know: the library itself, so that settings are checked without loading it.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import SplitResult, urlsplit

from kledger.ledger.errors import InvalidArgument

OBJECT_STORE = "object-store"
"""The kind of tier, stored with every copy."""

Value = str | bool | int | float
"""What a configuration file can hold."""

STORE_OPTIONS: Mapping[str, AbstractSet[str]] = {
    "s3": {
        "access_key_id",
        "aws_endpoint_url_s3",
        "bucket",
        "checksum_algorithm",
        "conditional_put",
        "container_authorization_token_file",
        "container_credentials_full_uri",
        "container_credentials_relative_uri",
        "copy_if_not_exists",
        "default_region",
        "disable_bulk_delete",
        "disable_tagging",
        "endpoint",
        "imdsv1_fallback",
        "metadata_endpoint",
        "region",
        "request_payer",
        "role_arn",
        "role_session_name",
        "s3_express",
        "secret_access_key",
        "server_side_encryption",
        "session_token",
        "skip_signature",
        "sse_bucket_key_enabled",
        "sse_customer_key_base64",
        "sse_kms_key_id",
        "sts_endpoint",
        "unsigned_payload",
        "virtual_hosted_style_request",
        "web_identity_token_file",
    },
    "gs": {
        "application_credentials",
        "base_url",
        "bearer_token",
        "bucket",
        "service_account",
        "service_account_key",
        "skip_signature",
    },
    "az": {
        "account_key",
        "account_name",
        "authority_host",
        "client_id",
        "client_secret",
        "container_name",
        "credential_type",
        "disable_tagging",
        "encryption_key",
        "endpoint",
        "fabric_cluster_identifier",
        "fabric_session_token",
        "fabric_token_service_url",
        "fabric_workload_host",
        "federated_token_file",
        "msi_endpoint",
        "msi_resource_id",
        "object_id",
        "sas_key",
        "skip_signature",
        "tenant_id",
        "token",
        "use_azure_cli",
        "use_emulator",
        "use_fabric_endpoint",
    },
    "file": set(),
    "memory": set(),
}
"""The options of each kind of store, by the scheme of its URL."""
CLIENT_OPTIONS = {
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "default_content_type",
    "http1_only",
    "http2_keep_alive_interval",
    "http2_keep_alive_timeout",
    "http2_keep_alive_while_idle",
    "http2_only",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "randomize_addresses",
    "read_timeout",
    "root_certificate",
    "timeout",
    "user_agent",
}
"""Those of the connections to a store."""
RETRY_OPTIONS = {"max_retries", "retry_timeout"}
"""Those of retries; `retry_timeout` in seconds."""
SECRET_OPTIONS = {
    "access_key_id",
    "account_key",
    "bearer_token",
    "client_secret",
    "encryption_key",
    "fabric_session_token",
    "proxy_url",
    "sas_key",
    "secret_access_key",
    "service_account_key",
    "session_token",
    "sse_customer_key_base64",
    "sse_kms_key_id",
    "token",
}
"""Options whose values never leave this process but to the store."""
LOCATING_OPTIONS = {"account_name", "aws_endpoint_url_s3", "base_url", "endpoint", "region"}
"""Options without which a store cannot be found again; none is a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """Options as the library takes them, and the scheme of the URL that they belong to."""

    scheme: str
    store: Mapping[str, str | bool]
    client: Mapping[str, str | bool]
    retry: Mapping[str, int | timedelta]


def checked_options(url: str, options: Mapping[str, object]) -> StoreOptions:
    """Check a URL and options.

    Raises:
        InvalidArgument: the message has what is wrong, and what is allowed.
    """
    scheme = _checked_url(url).scheme
    known = STORE_OPTIONS[scheme]
    if known:
        known = {*known, *CLIENT_OPTIONS, *RETRY_OPTIONS}
    if unknown := sorted(options.keys() - known):
        raise InvalidArgument(
            f"object store options: {', '.join(unknown)} unknown for {scheme}://, "
            f"expected some of: {', '.join(sorted(known)) or '(none)'}"
        )
    for name, value in options.items():
        if not isinstance(value, Value):
            raise InvalidArgument(
                f"object store option {name}: expected a text, a number or a boolean, "
                f"got {type(value).__name__}"
            )
    _check_http(options)
    return StoreOptions(
        scheme=scheme,
        store=_as_texts(options, STORE_OPTIONS[scheme]),
        client=_as_texts(options, CLIENT_OPTIONS),
        retry=_retry_options(options),
    )


def locating_options(options: Mapping[str, object]) -> dict[str, str]:
    """Return the options that find a store again; also those of a location."""
    return {name: str(options[name]) for name in LOCATING_OPTIONS & options.keys()}


def options_elsewhere(url: str, options: Mapping[str, object]) -> dict[str, object]:
    """Return what of a server's options holds for a store at another URL, credentials too."""
    of_scheme = STORE_OPTIONS.get(urlsplit(url).scheme, frozenset())
    known = {*of_scheme, *CLIENT_OPTIONS, *RETRY_OPTIONS} if of_scheme else set()
    return {name: value for name, value in options.items() if name in known - LOCATING_OPTIONS}


def _checked_url(url: str) -> SplitResult:
    """Take a URL apart; messages do not repeat it, since it may have a password by mistake."""
    parts = urlsplit(url)
    allowed = "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///folder"
    if parts.scheme not in STORE_OPTIONS:
        raise InvalidArgument(
            f"object store URL: expected one of {allowed}; got the scheme {parts.scheme!r}"
        )
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise InvalidArgument(
            "object store URL: user names, passwords and queries are options, "
            f"expected one of {allowed}"
        )
    if parts.scheme == "memory":
        is_whole = not parts.netloc and parts.path in {"", "/"}
    elif parts.scheme == "file":
        is_whole = not parts.netloc and parts.path.startswith("/")
    else:
        is_whole = bool(parts.netloc)
    if not is_whole:
        raise InvalidArgument(f"object store URL: expected one of {allowed}; got {url}")
    return parts


def _check_http(options: Mapping[str, object]) -> None:
    endpoint = str(options.get("endpoint", ""))
    if endpoint.startswith("http://") and options.get("allow_http") not in {True, "true"}:
        raise InvalidArgument(
            f"object store option endpoint: {endpoint} is not encrypted; "
            "this needs the option allow_http = true"
        )


def _as_texts(options: Mapping[str, object], names: AbstractSet[str]) -> dict[str, str | bool]:
    return {
        name: value if isinstance(value, bool) else str(value)
        for name, value in options.items()
        if name in names
    }


def _retry_options(options: Mapping[str, object]) -> dict[str, int | timedelta]:
    retry: dict[str, int | timedelta] = {}
    for name in RETRY_OPTIONS & options.keys():
        value = options[name]
        if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
            raise InvalidArgument(
                f"object store option {name}: expected a number of at least 0, got {value!r}"
            )
        retry[name] = int(value) if name == "max_retries" else timedelta(seconds=value)
    return retry
