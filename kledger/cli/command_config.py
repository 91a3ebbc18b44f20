"""Command config: the file of `--command-config`, with the client properties of Apache Kafka.

    security.protocol=SASL_SSL
    ssl.truststore.location=/etc/kledger/ca.pem
    sasl.mechanism=SCRAM-SHA-512
    sasl.jaas.config=… required username="admin" password="…";

Rule: the same file serves Kafka's tools and these commands. Names without a use here are ignored,
as Kafka's tools do; an invalid value is a usage error. No message contains a secret.
Must not know: the commands.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kledger.native.errors import InvalidArgument
from kledger.native.rpc.client_credentials import ClientCredentials
from kledger.native.rpc.tls import ClientTls
from kledger.security.client.client_properties import read_client_security
from kledger.security.client.client_security import (
    INSECURE,
    AccessTokenLogin,
    ClientLogin,
    ClientSecurity,
    ClientTlsTexts,
)
from kledger.security.tls.pem_text import TlsMistake, read_text

_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_NAME: Final = re.compile(r"((?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class CommandConfigMistake(InvalidArgument):
    """The file cannot be used; the message has its name."""


@dataclass(frozen=True, slots=True)
class CommandConfig:
    """What a command connects with."""

    credentials: ClientCredentials = field(default_factory=ClientCredentials)

    @property
    def scheme(self) -> str:
        """The beginning of the URL for `kledger.connect`."""
        return "kledger://" if self.credentials.tls is None else "kledger+tls://"

    def options(self) -> dict[str, Any]:
        """Return the arguments of `kledger.connect`."""
        found, tls = self.credentials, self.credentials.tls
        values = {
            "token": found.token,
            "username": found.username,
            "password": found.password,
            "ca": tls.ca if tls is not None else None,
            "certificate": tls.certificate if tls is not None else None,
            "key": tls.key if tls is not None else None,
        }
        return {name: value for name, value in values.items() if value is not None}


def read_command_config(path: Path | None) -> CommandConfig:
    """Read a file; None: no encryption and no login.

    Raises:
        CommandConfigMistake: it cannot be read or used.
    """
    security = read_client_file(path)
    try:
        credentials = ClientCredentials(**_login(security.login), tls=_tls(security.tls))
    except ValueError as error:
        raise CommandConfigMistake(f"{path}: {error}") from None
    return CommandConfig(credentials)


def read_client_file(path: Path | None) -> ClientSecurity:
    """Read a file for Kafka's listeners; arguments and errors of `read_command_config`."""
    if path is None:
        return INSECURE
    try:
        text = read_text("--command-config", str(path))
    except TlsMistake as error:
        raise CommandConfigMistake(str(error)) from None
    try:
        return read_client_security(dict(parse_properties(text)))
    except ValueError as error:
        raise CommandConfigMistake(f"{path}: {error}") from None


def parse_properties(text: str) -> Iterator[tuple[str, str]]:
    """Yield names and values of Java's properties: comments, continued lines, escapes."""
    lines = iter(text.splitlines())
    for line in lines:
        whole = line.lstrip()
        if not whole or whole[0] in "#!":
            continue
        while _is_continued(whole):
            whole = whole[:-1] + next(lines, "").lstrip()
        name = _NAME.match(whole)
        assert name is not None, "the expression matches every line"
        yield _unescaped(name[1]), _unescaped(whole[name.end() :])


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    def character(escape: re.Match[str]) -> str:
        found = escape[1]
        return chr(int(found[1:], 16)) if len(found) == 5 else _CONTROLS.get(found, found)

    return _ESCAPE.sub(character, text)


def _login(login: ClientLogin | None) -> dict[str, str]:
    """Return token, or user and password."""
    if login is None:
        return {}
    if isinstance(login, AccessTokenLogin):
        return {"token": login.token}
    if login.is_delegation_token:
        raise ValueError("sasl.jaas.config: a delegation token is for Kafka's listeners alone")
    return {"username": login.user, "password": login.password}


def _tls(texts: ClientTlsTexts | None) -> ClientTls | None:
    if texts is None:
        return None
    return ClientTls(
        ca=texts.trusted or None, certificate=texts.chain or None, key=texts.key or None
    )
