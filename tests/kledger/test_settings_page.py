"""The page agrees with the classes of the sections, and every name works in every form it shows."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest

from kledger.gateway.config import PrefixedSettings
from kledger.setting_names import RENAMED, translate
from kledger.setting_values import ConfigText, OptionTable, convert
from kledger.settings import (
    RANGES,
    SHARED_WITH_TOPICS,
    TOPIC_CONFIGS,
    ServerSettings,
    Settings,
    load,
    own_names,
    variable_of,
)
from kledger.settings_page import PAGE, SECTION_TEXTS, descriptions_of, page
from kledger.topics.config.config_keys import CONFIG_KEYS

KINDS = own_names()
TOPIC_DEFAULTS = {
    synonym.name: key.default for key in CONFIG_KEYS.values() for synonym in key.synonyms
}
ADDRESSES = {
    "server.kafka",
    "server.native",
    "server.admin",
    "cluster.peers",
    "cluster.advertised_peers",
}
VALUES = {
    **dict.fromkeys(ADDRESSES, "127.0.0.1:7"),
    "kafka.listener_addresses": "PLAINTEXT://127.0.0.1:1,SSL://127.0.0.1:2",
    "kafka.listener_settings": PrefixedSettings({"plaintext.connections.max.reauth.ms": "5"}),
    "kafka.max_connections_per_ip_overrides": "127.0.0.1:7",
    "kafka.super_users": "User:root",
    "kafka.log_cleaner_io_max_bytes_per_second": 1_500_000.0,
    "topics.batch_validation": "full",
    "topics.kledger_data_read_priority": "bookkeeper-first",
}
"""Of settings whose text has a form."""
NOT_ALONE = {"kafka.advertised_addresses"}
"""Settings that need another one."""


def test_page_is_the_one_made_from_the_classes() -> None:
    assert page() == PAGE.read_text("utf-8"), "write it again: python -m kledger.settings_page"


def test_every_setting_with_a_field_has_one_row() -> None:
    assert list(SECTION_TEXTS) == list(Settings.__dataclass_fields__)
    text = page()
    for name, part in zip(SECTION_TEXTS, text.split("\n## ")[1:], strict=False):
        section = getattr(Settings(), name)
        for field in section.__dataclass_fields__:
            is_setting = f"{name}.{field}" in own_names()
            assert is_setting == (f"| `{field}` |" in part), field


def test_descriptions_are_the_docstrings_below_the_fields() -> None:
    descriptions = descriptions_of(ServerSettings)
    assert "The folder of all data." == descriptions["data"]
    assert descriptions.keys() == ServerSettings.__dataclass_fields__.keys()


def names_of_the_page() -> list[str]:
    """Return every name that stands in a table of a section, as `section.field`."""
    parts = re.split(r"\n## (\w+)\n", page().partition("\n## Names from")[0])[1:]
    return [
        f"{section}.{name}"
        for section, part in zip(parts[::2], parts[1::2], strict=True)
        for name in re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE)
    ]


def value_for(name: str) -> object:
    """Return a value that the setting may have, other than its default where there is one."""
    if name in VALUES:
        return VALUES[name]
    default = in_force(Settings(), name)
    kind: Any = KINDS[name]
    if get_origin(kind) is Literal:
        return next(each for each in get_args(kind) if each != default)
    if get_origin(kind) is tuple:
        return ("words", "and.words")
    if kind is OptionTable:
        return OptionTable(region="somewhere")
    if kind is bool:
        return not default
    if isinstance(default, int):
        return min(default + 1, RANGES.get(name, (0, 2**62))[1])
    return 7 if kind == int | None else "words"


def in_text(value: object) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}={text}" for name, text in value.items())
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def in_toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f'{name} = "{text}"' for name, text in value.items()) + "}"
    if isinstance(value, tuple):
        return str(list(value))
    return str(value).lower() if isinstance(value, bool | int) else f'"{value}"'


def in_force(settings: Settings, name: str) -> object:
    section, _, field = name.partition(".")
    return getattr(getattr(settings, section), field)


def spellings(name: str) -> Iterator[tuple[str, str]]:
    """Yield the sections ("" for none) and names by which the page lets one setting be named."""
    section, _, field = name.partition(".")
    yield section, field
    if KINDS[name] in (
        OptionTable,
        PrefixedSettings,
    ):  # only its section tells whose options they are
        return
    if field not in SECTION_TEXTS and sum(other.endswith(f".{field}") for other in KINDS) == 1:
        yield "", field
    if section == "kafka":
        yield "kafka", field.replace("_", ".")
        yield "", field.replace("_", ".")


@pytest.mark.parametrize("name", [each for each in names_of_the_page() if each not in NOT_ALONE])
def test_every_name_of_the_page_works_in_file_environment_and_set(
    tmp_path: Path, name: str
) -> None:
    value = value_for(name)
    from_environment = load(environment={variable_of(name): in_text(value)})
    assert value == in_force(from_environment, name)
    for section, spelled in spellings(name):
        file = tmp_path / "k.toml"
        head = f"[{section}]\n" if section else ""
        file.write_text(f"{head}{spelled} = {in_toml(value)}\n")
        assert value == in_force(load(file=file), name), file.read_text()
        dotted = f"{section}.{spelled}" if section else spelled
        assert value == in_force(load(assignments=[f"{dotted}={in_text(value)}"]), name), dotted


@pytest.mark.parametrize("name", sorted({*TOPIC_CONFIGS.values(), *SHARED_WITH_TOPICS.values()}))
def test_every_broker_level_name_of_a_topic_setting_works_in_each_form(
    tmp_path: Path, name: str
) -> None:
    value = TOPIC_DEFAULTS[name]
    file = tmp_path / "k.toml"
    for section in ("", "kafka", "topics"):
        head = f"[{section}]\n" if section else ""
        file.write_text(f'{head}{name} = "{value}"\n')
        assert value == load(file=file).topics.configs[name], file.read_text()
        dotted = f"{section}.{name}" if section else name
        assert value == load(assignments=[f"{dotted}={value}"]).topics.configs[name]
    section = "topics" if KINDS.get(f"topics.{name.replace('.', '_')}") is ConfigText else "kafka"
    variable = variable_of(f"{section}.{name.replace('.', '_')}")
    assert value == load(environment={variable: value}).topics.configs[name]


@pytest.mark.parametrize("theirs", RENAMED)
def test_every_name_of_kafka_and_pulsar_works_in_each_form(tmp_path: Path, theirs: str) -> None:
    own, factor = RENAMED[theirs]
    section = own.partition(".")[0]
    is_kafkas = "." in theirs or theirs == "listeners"
    value: object = VALUES.get(own, {str: "words", bool: True}.get(KINDS[own], 7))
    wanted = value if factor == 1 else 7 * factor
    assert {own: wanted} == translate(theirs, value, KINDS)
    for place in {"", section, *(["kafka"] if is_kafkas else [])}:
        file = tmp_path / "k.toml"
        file.write_text((f"[{place}]\n" if place else "") + f"{theirs} = {in_toml(value)}\n")
        dotted = f"{place}.{theirs}" if place else theirs
        for settings in (load(file=file), load(assignments=[f"{dotted}={value}"])):
            key = own.partition(".")[2]
            if key in TOPIC_CONFIGS:
                assert str(wanted) == settings.topics.configs[TOPIC_CONFIGS[key]]
            else:
                assert convert(own, KINDS[own], wanted) == in_force(settings, own)
