"""Command config: the file of `--command-config`, with the client properties of Apache Kafka.

    security.protocol=SASL_SSL
    ssl.truststore.location=/etc/kledger/ca.pem
    sasl.mechanism=SCRAM-SHA-512
    sasl.jaas.config=… required username="admin" password="…";

Rule: the same file serves Kafka's tools and these commands. Names that are of no use here are
skipped, as Kafka's tools do; a value that cannot work is a mistake of the caller. No message has a
value of a secret.
Must not know: the commands.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from kledger.native.errors import InvalidArgument
from kledger.native.rpc.client_credentials import ClientCredentials
from kledger.native.rpc.tls import ClientTls
from kledger.security.jaas import parse_jaas
from kledger.security.tls.key_text import CERTIFICATE, PRIVATE_KEY, without_password

FILE_BYTES_MAX: Final = 4 << 20
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER: Final = "OAUTHBEARER"
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_NAME: Final = re.compile(r"((?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class CommandConfigMistake(InvalidArgument):
    """The file cannot be used; the message begins with its name."""


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
    """Read a file; None: nothing is encrypted, and the command is nobody's.

    Raises:
        CommandConfigMistake: it cannot be read or used.
    """
    if path is None:
        return CommandConfig()
    properties = dict(parse_properties(_text(path, str(path))))
    try:
        return CommandConfig(_credentials(properties))
    except (InvalidArgument, ValueError) as error:
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


def _credentials(properties: Mapping[str, str]) -> ClientCredentials:
    protocol = properties.get("security.protocol", PROTOCOLS[0]).strip().upper()
    if protocol not in PROTOCOLS:
        raise ValueError(f"security.protocol: expected {', '.join(PROTOCOLS)}, got {protocol!r}")
    login = _login(properties) if protocol.startswith("SASL") else {}
    tls = _tls(properties) if protocol.endswith("SSL") else None
    return ClientCredentials(**login, tls=tls)


def _login(properties: Mapping[str, str]) -> dict[str, str]:
    """Return token, or user and password."""
    mechanism = properties.get("sasl.mechanism", "GSSAPI").strip().upper()
    if mechanism == OAUTHBEARER:
        return {"token": _token(properties)}
    if mechanism not in PASSWORD_MECHANISMS:
        known = ", ".join((*PASSWORD_MECHANISMS, OAUTHBEARER))
        raise ValueError(f"sasl.mechanism: expected {known}, got {mechanism!r}")
    setting = "sasl.jaas.config"
    try:
        options = parse_jaas(properties.get(setting, "")).options
    except ValueError as error:
        raise ValueError(f"{setting}: {error}") from None
    if options.get("tokenauth", "").lower() == "true":
        raise ValueError(f"{setting}: a delegation token is for Kafka's listeners alone")
    missing = [name for name in ("username", "password") if not options.get(name)]
    if missing:
        raise ValueError(f"{setting}: expected {' and '.join(missing)}")
    return {"username": options["username"], "password": options["password"]}


def _token(properties: Mapping[str, str]) -> str:
    """Return the access token in the file that a property names."""
    setting = "sasl.oauthbearer.token.endpoint.url"
    url = urlsplit(properties.get(setting, "").strip())
    if url.scheme != "file" or url.netloc not in ("", "localhost") or not url.path:
        raise ValueError(f"{setting}: expected file:///PATH, a file with an access token")
    return _text(Path(unquote(url.path)), setting).strip()


def _tls(properties: Mapping[str, str]) -> ClientTls:
    def text(name: str) -> str:
        return properties.get(name, "").strip()

    for name in ("ssl.truststore.type", "ssl.keystore.type"):
        store = name.removesuffix(".type")
        is_given = any(each.startswith(f"{store}.") for each in properties)
        if is_given and text(name).upper() != "PEM":
            raise ValueError(f"{name}: expected PEM, got {text(name) or 'nothing'!r}")
    ca = _stored(text, "ssl.truststore.location", "ssl.truststore.certificates")
    certificates = CERTIFICATE.findall(ca)
    if ca and not certificates:
        raise ValueError("ssl.truststore: expected certificates in PEM")
    chain = _stored(text, "ssl.keystore.location", "ssl.keystore.certificate.chain")
    key = PRIVATE_KEY.search(text("ssl.keystore.key") or chain)
    own = CERTIFICATE.findall(chain)
    if chain and (key is None or not own):
        raise ValueError("ssl.keystore: expected a private key and a certificate in PEM")
    return ClientTls(
        ca="\n".join(certificates) or None,
        certificate="\n".join(own) or None,
        key=without_password(key[0], text("ssl.key.password")) if key and own else None,
    )


def _stored(text: Callable[[str], str], location: str, content: str) -> str:
    return _text(Path(text(location)), location) if text(location) else text(content)


def _text(path: Path, named: str) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise CommandConfigMistake(f"{named}: expected at most {FILE_BYTES_MAX} bytes")
        return content.decode()
    except OSError as error:
        raise CommandConfigMistake(f"{named}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CommandConfigMistake(f"{named}: expected UTF-8") from None
