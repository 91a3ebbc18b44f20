"""The page says what the tables say."""

from kledger.gateway.config_page import PAGE, PARTS, has_effect, page
from kledger.gateway.configs.broker_keys import BROKER_KEYS, UpdateMode
from kledger.gateway.configs.group_keys import GROUP_KEYS
from kledger.topics.config.config_keys import CONFIG_KEYS


def test_the_page_is_the_one_that_the_tables_make() -> None:
    assert page() == PAGE.read_text("utf-8"), "write it anew: python -m kledger.gateway.config_page"


def test_every_setting_stands_once_and_internal_ones_do_not() -> None:
    text = page()
    for _, keys in PARTS:
        for key in keys.values():
            assert (0 if key.is_internal else 1) == text.count(f"**`{key.name}`**")


def test_settings_without_effect_are_listed_apart() -> None:
    assert has_effect(CONFIG_KEYS["retention.ms"])
    assert not has_effect(CONFIG_KEYS["flush.ms"])
    assert {"consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"} == {
        name for name, key in GROUP_KEYS.items() if has_effect(key)
    }


def test_what_of_a_broker_can_be_altered_stands_there() -> None:
    text = page()
    of_topics = {synonym.name for key in CONFIG_KEYS.values() for synonym in key.synonyms}
    shown = {name for name in BROKER_KEYS if f"| `{name}` |" in text}
    assert shown == {
        key.name
        for key in BROKER_KEYS.values()
        if key.mode is not UpdateMode.READ_ONLY and key.name not in of_topics
    }
