"""The page about settings of topics, groups, client metrics and brokers: docs/CONFIGS.md.

Rule: the page is made from the tables of names, and a test compares them. `python -m
kledger.gateway.config_page` writes it.
Must not know: values in force.
"""

from collections.abc import Iterable
from pathlib import Path

from kledger.gateway.configs.broker_keys import BROKER_KEYS, BrokerKey, UpdateMode
from kledger.gateway.configs.client_metrics import CLIENT_METRICS_KEYS
from kledger.gateway.configs.group_keys import GROUP_KEYS
from kledger.topics.config.config_keys import CONFIG_KEYS, NO_EFFECT, ConfigKey

PAGE = Path(__file__).resolve().parents[1] / "docs" / "CONFIGS.md"
PARTS = (
    (
        """# Settings of topics

Every setting that a topic of Apache Kafka 4.3 has is known, with Kafka's type, default and
limits, and can be set, altered and described; a name that starts with `kledger.` is only here.
The broker-level names give the default of all topics; the first of them can be altered while the
server runs.

This page is made from the tables in `topics/config/config_keys.py`,
`gateway/configs/group_keys.py`, `gateway/configs/client_metrics.py` and
`gateway/configs/broker_keys.py` by `python -m kledger.gateway.config_page`.
""",
        CONFIG_KEYS,
    ),
    (
        """
# Settings of groups

Every setting that a group of Apache Kafka 4.3 has is known. What is set for one group stands before
the broker-level setting of all, from its next heartbeat on and after a restart; the group need not
exist. `kafka-configs.sh --entity-type groups` sets, shows and takes back. Of the broker-level names
those two can be given to the server whose settings have an effect; the others are only shown.
""",
        GROUP_KEYS,
    ),
    (
        """
# Settings of client metrics

A subscription to metrics of clients (KIP-714) exists while something is set for it.
`kafka-client-metrics.sh` and `kafka-configs.sh --entity-type client-metrics` set, show and delete.
""",
        CLIENT_METRICS_KEYS,
    ),
)

BROKERS = """
# Settings of the broker

DescribeConfigs of a broker lists every setting that a broker of Apache Kafka 4.3 has, with Kafka's
type and default, and with the value of this server where it has one. Those that Kafka can alter
while it runs can be altered here, too, for this node or, unless it says *one node*, for all nodes;
they hold at once and after a restart. The defaults of topics are among them, under the first of
their broker-level names above. The others are given at the start ([SETTINGS.md](SETTINGS.md)) or
have Kafka's default, and are refused: `Cannot update these configs dynamically`. A name that Kafka
does not know is kept and its value not shown, as in Kafka.

| name | default | what it does here |
|---|---|---|
"""


def has_effect(key: ConfigKey) -> bool:
    """Return whether a setting changes anything here."""
    return not key.documentation.startswith(NO_EFFECT)


def page() -> str:
    """Return the whole page."""
    parts = (head + _lists(keys.values()) for head, keys in PARTS)
    return "".join([*parts, BROKERS, *map(_row, alterable_brokers())])


def alterable_brokers() -> list[BrokerKey]:
    """Return the alterable keys of a broker, except the defaults of topics."""
    of_topics = {synonym.name for key in CONFIG_KEYS.values() for synonym in key.synonyms}
    return [
        key
        for key in BROKER_KEYS.values()
        if key.mode is not UpdateMode.READ_ONLY and key.name not in of_topics
    ]


def _row(key: BrokerKey) -> str:
    default = "none" if key.default is None else f"`{key.default}`" if key.default else "empty"
    remarks = {
        UpdateMode.PER_BROKER: "One node. ",
        UpdateMode.PER_LISTENER: "One node, one listener (`listener.name.…`). ",
    }
    words = remarks.get(key.mode, "") + (key.documentation or "")
    return f"| `{key.name}` | {default} | {words} |\n"


def _lists(keys: Iterable[ConfigKey]) -> str:
    """Return the lists of effective keys and of accepted ones."""
    shown = [key for key in keys if not key.is_internal]
    parts = []
    for title, is_effective in (("Settings with an effect", True), ("Accepted only", False)):
        entries = [_entry(key) for key in shown if has_effect(key) is is_effective]
        parts += [f"\n## {title}\n", *entries] if entries else []
    return "".join(parts)


def _entry(key: ConfigKey) -> str:
    default = f"`{key.default}`" if key.default else "empty"
    facts = [f"{key.type.value}, default {default}"]
    if key.allowed is not None:
        facts.append(key.allowed.description)
    if key.synonyms:
        names = ", ".join(f"`{synonym.name}`" for synonym in key.synonyms)
        facts.append(f"broker: {names}")
    return f"\n**`{key.name}`** ({'; '.join(facts)})\n\n{key.documentation}\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
