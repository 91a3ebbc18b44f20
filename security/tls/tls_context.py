"""TlsContext: the standard library's context of one listener, renewed when its files change.

Rule: new connections get the newest files that work; files that do not are logged once, and the
context before them stays. TLS 1.2 and 1.3; no renegotiation, no resumed sessions, so that every
connection shows its certificate to the authorities of today.
Must not know: connections.
"""

import logging
import os
import ssl
from contextlib import closing
from typing import Final

from kledger.security.tls.pem_text import TlsMistake
from kledger.security.tls.tls_settings import TlsMaterial, TlsSettings

logger = logging.getLogger(__name__)

_VERIFY: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_VERSIONS: Final = {
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}


class TlsContext:
    """The context of one listener."""

    def __init__(self, settings: TlsSettings, name: str = "") -> None:
        """Read keys and certificates.

        Args:
            settings: of the listener.
            name: of the listener, for the log.

        Raises:
            TlsMistake: they cannot work.
        """
        self._settings = settings
        self._name = name
        self._files = settings.file_states()
        self._context = make_context(settings, settings.material())

    @property
    def settings(self) -> TlsSettings:
        """The settings of the listener."""
        return self._settings

    def current(self) -> ssl.SSLContext:
        """Return the context for a new connection."""
        files = self._settings.file_states()
        if files != self._files:
            self._files = files
            try:
                self._context = make_context(self._settings, self._settings.material())
                logger.info("listener %s: keys and certificates were read again", self._name)
            except TlsMistake as error:
                logger.warning(
                    "listener %s: files have changed and do not work; those before them stay: %s",
                    self._name,
                    error,
                )
        return self._context


def make_context(settings: TlsSettings, material: TlsMaterial) -> ssl.SSLContext:
    """Return a context for servers.

    Raises:
        TlsMistake: key and certificate do not fit, or OpenSSL refuses one of them.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = [_VERSIONS[each] for each in settings.enabled_protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_NO_TICKET
    context.num_tickets = 0
    load_chain(context, key=material.key, chain=material.chain, password=material.password)
    context.verify_mode = _VERIFY[settings.client_auth]
    if material.trusted:
        try:
            context.load_verify_locations(cadata=material.trusted)
        except (ssl.SSLError, ValueError) as error:
            raise TlsMistake(f"ssl.truststore: {ssl_reason(error)}") from None
    return context


def load_chain(context: ssl.SSLContext, *, key: str, chain: str, password: str = "") -> None:
    """Load key and chain from memory: OpenSSL takes them as a file only.

    Raises:
        TlsMistake: they do not fit.
    """
    file = os.memfd_create("tls", os.MFD_CLOEXEC)
    with closing(os.fdopen(file, "wb")) as memory:
        memory.write(f"{key}\n{chain}\n".encode())
        memory.flush()
        try:
            # A function, or OpenSSL would ask at the terminal for a password that is missing.
            context.load_cert_chain(f"/proc/self/fd/{file}", password=lambda: password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise TlsMistake(
                "ssl.keystore: the private key, its password and the certificate do not work "
                f"together: {ssl_reason(error)}"
            ) from None


def ssl_reason(error: Exception) -> str:
    """Return OpenSSL's word for an error, which has nothing of a key."""
    return getattr(error, "reason", None) or type(error).__name__
