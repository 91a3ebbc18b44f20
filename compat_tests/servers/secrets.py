"""Secrets: the secrets of a server's settings and users, and whether a text shows one.

Rule: the secrets of settings are found by the settings' names; those of users that are added later
are named by the test.
Must not know: servers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_PASSWORD_IN_JAAS = re.compile(r'\b(?:user_\w+|password)="([^"]+)"')
_NAMES_OF_SECRETS = (".password", ".secret.key", ".keystore.key", "secret_access_key")


def secrets_in(settings: Mapping[str, str]) -> set[str]:
    """Return the passwords and keys among the values of settings."""
    found = {value for name, value in settings.items() if name.endswith(_NAMES_OF_SECRETS)}
    for name, value in settings.items():
        if name.endswith("sasl.jaas.config"):
            found.update(_PASSWORD_IN_JAAS.findall(value))
    return found


def shown_secrets(text: str, secrets: Iterable[str]) -> list[str]:
    """Return the lines of a text that show one of the secrets."""
    known = tuple(secrets)
    return [line for line in text.splitlines() if any(secret in line for secret in known)]
