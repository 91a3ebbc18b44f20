"""Options are checked before anything starts; wrong ones are refused by name."""

from __future__ import annotations

import argparse

import pytest

from pipelines.archive import ArchiveOptions
from pipelines.errors import WrongCall
from pipelines.options import add_flags, duration_ms, read_options
from pipelines.replay import ReplayOptions
from pipelines.windows import WindowsOptions

ARCHIVE = {"servers": "h:1", "topic": "t", "to": "d", "checkpoint": "c"}


def test_defaults_are_filled_in() -> None:
    options = read_options(ArchiveOptions, ARCHIVE)
    assert ("kafka", {}, None) == (options.source, options.option, options.bad_records)
    assert {"processingTime": "10000 milliseconds"} == options.trigger
    assert {"availableNow": True} == read_options(
        ArchiveOptions, ARCHIVE | {"available_now": True}
    ).trigger
    assert {"processingTime": "500 milliseconds"} == read_options(
        ArchiveOptions, ARCHIVE | {"every": "0.5"}
    ).trigger


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"topic": None}, "option 'topic' is missing"),
        ({"topics": "x"}, "unknown option 'topics'; known are available_now, bad_records"),
        ({"source": "pulsar"}, "option 'source': expected kafka or kledger, got 'pulsar'"),
        ({"every": "soon"}, "option 'every': expected seconds above 0, got 'soon'"),
        ({"every": 5, "available_now": True}, "exclude each other"),
        ({"max_offsets_per_trigger": 0}, "expected a whole number above 0, got 0"),
        ({"option": ["a"]}, "option 'option': expected KEY=VALUE, got 'a'"),
        ({"format": "csv"}, "option 'format': expected parquet, got 'csv'"),
    ],
)
def test_wrong_options_are_refused_by_name(change: dict[str, object], message: str) -> None:
    with pytest.raises(WrongCall, match=message):
        read_options(ArchiveOptions, ARCHIVE | change)


def test_options_of_the_source_are_texts_or_a_mapping() -> None:
    for given in (["kafka.a=b=c", "d="], {"kafka.a": "b=c", "d": ""}):
        options = read_options(ArchiveOptions, ARCHIVE | {"option": given})
        assert {"kafka.a": "b=c", "d": ""} == options.option


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5 minutes", 300_000), ("1 hour 30 minutes", 5_400_000), ("1 Day", 86_400_000)],
)
def test_durations_are_those_of_spark(text: str, expected: int) -> None:
    assert expected == duration_ms(text)


@pytest.mark.parametrize("text", ["5", "minutes", "5 fortnights", "-1 hour", "0 seconds", ""])
def test_other_durations_are_refused(text: str) -> None:
    windows = {**ARCHIVE, "window": text, "late": "1 hour"}
    with pytest.raises(WrongCall, match="option 'window': expected a duration"):
        read_options(WindowsOptions, windows)


def test_flags_have_the_names_of_the_options() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, ReplayOptions)
    words = "--servers h:1 --topic t --from d --keep-timestamps --option a=b --option c=d"
    options = read_options(ReplayOptions, vars(parser.parse_args(words.split())))
    assert ("d", True, False) == (options.from_, options.keep_timestamps, options.keep_partitions)
    assert {"a": "b", "c": "d"} == options.option
