"""The page about settings of a server: docs/SETTINGS.md.

Rule: what the page says is what the classes of the sections say, and a test compares them.
`python -m kledger.settings_page` writes it anew.
Must not know: values in force.
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

Given to `kledger serve`; of several sources the later one wins:

| source | form |
|---|---|
| `--config FILE`, TOML | below `[kafka]` or above all sections: `num_partitions = 3` or Kafka's \
`num.partitions = 3` |
| environment | `KLEDGER_KAFKA_NUM_PARTITIONS=3`: section and name |
| `--set`, as often as wanted | `--set kafka.num_partitions=3`, `--set num_partitions=3`, \
`--set num.partitions=3` |
| the other flags | `--data`, `--memory`, `--kafka`, `--native`, `--admin`, `--durability` |

A name that does not exist, or a value outside its limits, ends the start with one line; so does a
name without its section that two sections have. Variables that Kubernetes makes of a service called
kledger or kledger-something are no settings: they are left aside, with a warning. A name with
`max` in it is the limit of something that grows with what clients do; limits that cannot be set are
constants called `…_MAX`, beside the code that keeps them.

This page is made by `python -m kledger.settings_page`.
"""
SECTION_TEXTS = {
    "server": "The process.",
    "storage": "The store of all managed ledgers.",
    "kafka": (
        "The Kafka façade. Every name also works with dots, as Apache Kafka has it"
        " (`num.partitions`), here and without the section; one without words is what it is there."
    ),
    "topics": (
        "Topics. The defaults of their own settings go by Kafka's broker-level names, which stand"
        " in [CONFIGS.md](CONFIGS.md): `log.retention.ms` here, in `[kafka]` or without a section;"
        " in the environment `KLEDGER_TOPICS_LOG_RETENTION_MS`, but"
        " `KLEDGER_KAFKA_MESSAGE_MAX_BYTES`."
    ),
    "native": "The listener for native clients.",
}


def page() -> str:
    """Return the whole page."""
    parts = [_section(name, words) for name, words in SECTION_TEXTS.items()]
    return "".join((HEAD, *parts, _renamed()))


def descriptions_of(section: type) -> dict[str, str]:
    """Return what stands below each field of a class."""
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


def _section(name: str, words: str) -> str:
    """Return one table."""
    section = getattr(Settings(), name)
    told = descriptions_of(type(section))
    lines = [f"\n## {name}\n\n{words}\n\n| name | default | what it is |\n|---|---|---|\n"]
    known = own_names()
    for field in fields(section):
        if f"{name}.{field.name}" in known:
            default = _shown(getattr(section, field.name))
            lines.append(f"| `{field.name}` | {default} | {told.get(field.name, '')} |\n")
    return "".join(lines)


def _shown(value: Any) -> str:
    match value:
        case None | "":
            return "none"
        case bool():
            return str(value).lower()
        case _:
            return f"`{value}`"


def _renamed() -> str:
    """Return the names of others that are called differently here."""
    head = (
        "\n## Names of Apache Kafka and Apache Pulsar for these\n\n"
        "In the file above all sections or in that of what they stand for, and with `--set`;"
        " Kafka's also in `[kafka]`.\n\n| theirs | here |\n|---|---|\n"
    )
    return head + "".join(_renamed_lines())


def _renamed_lines() -> Iterator[str]:
    for theirs, (ours, factor) in RENAMED.items():
        yield f"| `{theirs}` | `{ours}`{f', times {factor:,}' if factor != 1 else ''} |\n"
    yield "| `advertised.listeners` | `kafka.advertised_host`, `kafka.advertised_port` |\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
