"""The page about settings of topics: docs/CONFIGS.md, made from the table of names.

Rule: what the page says is what the table says, and a test compares them. `python -m
topics.config_page` writes it anew.
Must not know: values in force.
"""

from pathlib import Path

from topics.config_keys import CONFIG_KEYS, ConfigKey

PAGE = Path(__file__).parents[1] / "docs" / "CONFIGS.md"
NOT_YET = frozenset(
    {
        "compression.type",
        "delete.retention.ms",
        "local.retention.bytes",
        "local.retention.ms",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "remote.storage.enable",
    }
)
"""Settings that are told what they are for, and change nothing as long as that is not there."""
HEAD = """# Settings of topics

Every setting that a topic of Apache Kafka 4.3 has is known, with Kafka's type, default and
limits, and can be set, altered and described; a name that starts with `kledger.` is only here.
The broker-level names give the default of all topics; the first of them can be altered while the
server runs.

This page is made from the table in `topics/config_keys.py` by `python -m topics.config_page`.
"""


def has_effect(key: ConfigKey) -> bool:
    """Return whether a setting changes anything here."""
    return key.name not in NOT_YET and not key.documentation.startswith("Accepted and reported")


def page() -> str:
    """Return the whole page."""
    shown = [key for key in CONFIG_KEYS.values() if not key.is_internal]
    parts = [HEAD]
    for title, is_effective in (("Settings with an effect", True), ("Accepted only", False)):
        parts.append(f"\n## {title}\n")
        parts += [_entry(key) for key in shown if has_effect(key) is is_effective]
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
