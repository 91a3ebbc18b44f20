"""Variables that Kubernetes sets in every container for services whose name begins with ours.

    kledger-kafka   KLEDGER_KAFKA_SERVICE_HOST=10.0.0.1
                    KLEDGER_KAFKA_SERVICE_PORT=9092
                    KLEDGER_KAFKA_SERVICE_PORT_CLIENTS=9092
                    KLEDGER_KAFKA_PORT=tcp://10.0.0.1:9092
                    KLEDGER_KAFKA_PORT_9092_TCP=tcp://10.0.0.1:9092
                    KLEDGER_KAFKA_PORT_9092_TCP_ADDR=10.0.0.1       (also _PORT and _PROTO)

Rule: they look like settings and are none. A mistyped setting must still be an error, so only these
forms are ignored, with a warning.
Must not know: the settings.
"""

import re
from collections.abc import Iterable, Mapping

_FORMS = re.compile(
    r"KLEDGER_(\w+_)?"
    r"(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PORT|PROTO|ADDR))?)"
)
_LINK = re.compile(r"KLEDGER_(\w+_)?PORT")
_URLS = ("tcp://", "udp://", "sctp://")


def is_kubernetes_variable(name: str, value: str) -> bool:
    """Return whether Kubernetes sets a variable of this name."""
    if _FORMS.fullmatch(name):
        return True
    return _LINK.fullmatch(name) is not None and value.startswith(_URLS)


def kubernetes_variables(environment: Mapping[str, str], settings: Iterable[str] = ()) -> list[str]:
    """Return the names of those variables, sorted, without those that are settings."""
    known = set(settings)
    return sorted(
        name
        for name, value in environment.items()
        if name not in known and is_kubernetes_variable(name, value)
    )
