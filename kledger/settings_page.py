"""The page about settings of a server: docs/SETTINGS.md.

Rule: the page is made from the classes of the sections, and a test compares them.
`python -m kledger.settings_page` writes it.
Must not know: the values of a running server.
"""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from kledger.setting_names import RENAMED
from kledger.settings import Settings, own_names

PAGE = Path(__file__).parents[1] / "docs" / "SETTINGS.md"
HEAD = """# Settings of a server

`kledger serve` reads them from these sources; of several the later one wins:

| source | form |
|---|---|
| `--config FILE`, TOML | in `[kafka]` or above all sections: `num_partitions = 3` or Kafka's \
`num.partitions = 3` |
| environment | `KLEDGER_KAFKA_NUM_PARTITIONS=3`: section and name |
| `--set`, may be repeated | `--set kafka.num_partitions=3`, `--set num_partitions=3`, \
`--set num.partitions=3` |
| the other flags | `--data`, `--memory`, `--kafka`, `--native`, `--admin`, `--workers`, \
`--durability`, `--cluster`, `--store` |

The server does not start with a name that does not exist, a value outside its limits, or a name
without its section that two sections have; one line on standard error says which. Variables that
Kubernetes sets for a service called kledger or kledger-something are ignored, with a warning. A
name with `max` in it limits something that grows with the load; limits that cannot be set are
constants called `…_MAX` in the code.

This page is made by `python -m kledger.settings_page`.
"""
SECTION_TEXTS = {
    "server": "The process.",
    "storage": "The store of all managed ledgers.",
    "kafka": (
        "The Kafka façade. Every name also works with Apache Kafka's dots (`num.partitions`), here"
        " and without the section; a setting without a description means what it means in Kafka."
    ),
    "topics": (
        "Topics. The defaults of topic settings have Kafka's broker-level names, listed in"
        " [CONFIGS.md](CONFIGS.md): `log.retention.ms` here, in `[kafka]` or without a section;"
        " in the environment `KLEDGER_TOPICS_LOG_RETENTION_MS`, but"
        " `KLEDGER_KAFKA_MESSAGE_MAX_BYTES`."
    ),
    "native": "The listener for native clients.",
    "offload": "Tiered storage: see [TIERS.md](TIERS.md).",
    "cluster": "A broker without a disk: see [CLUSTER.md](CLUSTER.md).",
}


def page() -> str:
    """Return the whole page."""
    parts = [_section(name, text) for name, text in SECTION_TEXTS.items()]
    return "".join((HEAD, *parts, _renamed()))


def descriptions_of(section: type) -> dict[str, str]:
    """Return the docstring below each field of a class, by the field's name."""
    (tree,) = ast.parse(inspect.getsource(section)).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            found[field.target.id] = " ".join(str(below.value.value).split())
    return found


def _section(name: str, text: str) -> str:
    """Return one table."""
    section = getattr(Settings(), name)
    descriptions = descriptions_of(type(section))
    lines = [f"\n## {name}\n\n{text}\n\n| name | default | meaning |\n|---|---|---|\n"]
    known = own_names()
    for field in fields(section):
        if f"{name}.{field.name}" in known:
            default = _shown(getattr(section, field.name))
            description = descriptions.get(field.name, "")
            lines.append(f"| `{field.name}` | {default} | {description} |\n")
    return "".join(lines)


def _shown(value: Any) -> str:
    match value:
        case None | "" | ():
            return "none"
        case bool():
            return str(value).lower()
        case _:
            return f"`{value}`"


def _renamed() -> str:
    """Return the table of names from Kafka and Pulsar that differ from ours."""
    head = (
        "\n## Names from Apache Kafka and Apache Pulsar\n\n"
        "They work with `--set`, and in the file above all sections or in the section of the name"
        " here; Kafka's also in `[kafka]`.\n\n| there | here |\n|---|---|\n"
    )
    return head + "".join(_renamed_lines())


def _renamed_lines() -> Iterator[str]:
    for theirs, (ours, factor) in RENAMED.items():
        yield f"| `{theirs}` | `{ours}`{f', times {factor:,}' if factor != 1 else ''} |\n"
    yield "| `listeners` | `server.kafka`, or `kafka.listener_addresses` |\n"
    yield (
        "| `advertised.listeners` | `kafka.advertised_host` and `kafka.advertised_port`, or"
        " `kafka.advertised_addresses` |\n"
    )
    yield "| `listener.name.<name>.<setting>` | an entry of `kafka.listener_settings` |\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
