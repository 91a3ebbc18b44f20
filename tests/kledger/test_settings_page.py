"""The page says what the classes of the sections say."""

from kledger.settings import Settings, own_names
from kledger.settings_page import PAGE, PARTS, page, words_of
from ledger import StoreConfig


def test_the_page_is_the_one_that_the_classes_make() -> None:
    assert page() == PAGE.read_text("utf-8"), "write it anew: python -m kledger.settings_page"


def test_every_setting_with_a_field_stands_once() -> None:
    assert list(PARTS) == list(Settings.__dataclass_fields__)
    text = page()
    for name, part in zip(PARTS, text.split("\n## ")[1:], strict=False):
        section = getattr(Settings(), name)
        for field in section.__dataclass_fields__:
            is_setting = f"{name}.{field}" in own_names()
            assert is_setting == (f"| `{field}` |" in part), field


def test_words_are_those_below_the_field() -> None:
    words = words_of(StoreConfig)
    assert "The same for the number of appends." == words["committer_queue_count_max"]
    assert words.keys() == StoreConfig.__dataclass_fields__.keys()
