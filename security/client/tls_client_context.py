"""The standard library's TLS context of a client.

Rule: TLS 1.2 and 1.3; the server's certificate is always verified.
Must not know: connections, properties.
"""

import ssl

from kledger.security.client.client_security import ClientTlsTexts
from kledger.security.tls.pem_text import TlsMistake
from kledger.security.tls.tls_context import load_chain, ssl_reason


def make_client_context(texts: ClientTlsTexts) -> ssl.SSLContext:
    """Return a context for clients.

    Raises:
        TlsMistake: OpenSSL refuses a text.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = texts.checks_host_name
    if texts.trusted:
        try:
            context.load_verify_locations(cadata=texts.trusted)
        except (ssl.SSLError, ValueError) as error:
            raise TlsMistake(f"ssl.truststore: {ssl_reason(error)}") from None
    else:
        context.load_default_certs()
    if texts.chain:
        load_chain(context, key=texts.key, chain=texts.chain)
    return context
