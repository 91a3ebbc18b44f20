"""Settings of brokers: listed, altered for one node and for all."""

from __future__ import annotations

from compat_tests.differential.config_scripts import DELETE, SET, changed, described
from compat_tests.differential.scripts import script
from compat_tests.differential.side import Side

BROKER = 4
ONE, ALL = "1", ""
VALUES = {
    "broker.id": ("2",),
    "num.partitions": ("3",),
    "log.retention.hours": ("3",),
    "log.cleaner.threads": ("2", "x", "-1", ""),
    "background.threads": ("0", "12"),
    "ssl.keystore.location": ("/x",),
    "ssl.client.auth": ("xx", "required"),
    "principal.builder.class": ("x",),
    "min.insync.replicas": ("0", "2"),
    "log.message.timestamp.type": ("nope",),
    "message.max.bytes": ("-4",),
    "max.connections.per.ip.overrides": ("x",),
    "sasl.enabled.mechanisms": ("PLAIN",),
    "no.such.name": ("1",),
}
"""The checked settings, by name."""


@script
def settings_of_brokers_are_listed(side: Side) -> None:
    for version in side.versions(32):
        for name in (ONE, ALL, "2", "x"):
            for synonyms in (False, True):
                request = described(BROKER, name, synonyms=synonyms)
                side.ask(f"broker {name!r}, synonyms {synonyms}", request, version)


@script
def settings_of_brokers_are_checked(side: Side) -> None:
    for name in (ONE, ALL, "2", "x"):
        for setting, values in VALUES.items():
            for value in values:
                request = changed(BROKER, name, (setting, SET, value), validate=True)
                side.ask(f"broker {name!r}, {setting}={value!r}", request, 1)


@script
def settings_of_brokers_are_altered(side: Side) -> None:
    settings = {
        "background.threads": "12",
        "no.such.name": "12",
        "listener.name.plaintext.max.connections": "100000",
    }
    keys = [*settings, "log.cleaner.threads"]

    def is_set(answer: object) -> bool:
        (result,) = answer.results  # type: ignore[attr-defined]
        return settings.keys() <= {each.name for each in result.configs if each.config_source < 4}

    def is_unset(answer: object) -> bool:
        (result,) = answer.results  # type: ignore[attr-defined]
        return {each.name: each.value for each in result.configs} == {
            "background.threads": "10",
            "log.cleaner.threads": "1",
        }

    for name in (ONE, ALL):
        changes = [(setting, SET, value) for setting, value in settings.items()]
        side.ask(f"set for {name!r}", changed(BROKER, name, *changes), 1)
        side.ask_until(f"as set for {name!r}", described(BROKER, ONE, keys), 4, is_set)
        back = [(setting, DELETE, None) for setting in settings]
        side.ask(f"taken back for {name!r}", changed(BROKER, name, *back), 1)
        side.ask_until(f"as taken back for {name!r}", described(BROKER, ONE, keys), 4, is_unset)
