"""The page says what the table says."""

from topics.config_keys import CONFIG_KEYS
from topics.config_page import NOT_YET, PAGE, has_effect, page


def test_the_page_is_the_one_that_the_table_makes() -> None:
    assert page() == PAGE.read_text("utf-8"), "write it anew: python -m topics.config_page"


def test_every_setting_stands_once_and_internal_ones_do_not() -> None:
    text = page()
    for key in CONFIG_KEYS.values():
        assert (0 if key.is_internal else 1) == text.count(f"**`{key.name}`**")


def test_settings_without_effect_are_told_apart() -> None:
    assert NOT_YET <= CONFIG_KEYS.keys()
    effects = {
        name: has_effect(CONFIG_KEYS[name]) for name in ("retention.ms", "flush.ms", *NOT_YET)
    }
    assert {"retention.ms"} == {name for name, is_effective in effects.items() if is_effective}
