"""What is given to commands of a running server, and how they end."""

import argparse

import pytest

from kledger.cli import live
from kledger.native.errors import (
    AlreadyClosed,
    ConsumerBusy,
    InvalidArgument,
    KledgerError,
    SubscriptionFenced,
    SubscriptionNotFound,
    TopicExists,
    TopicNotFound,
    TopicTerminated,
    Unavailable,
)
from kledger.native.message_id import MessageId

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("0", 0),
        ("1700000000000", 1_700_000_000_000),
        ("5:120", MessageId(5, 120)),
        ("5:120:3", MessageId(5, 120, 3)),
        ("5:120:3:2", MessageId(5, 120, 3, 2)),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T01:00:00.250+01:00", 250),
    ],
)
def test_seek_targets(text: str, expected: object) -> None:
    assert expected == live.seek_target(text)


@pytest.mark.parametrize(
    "text", ["", "soon", "-1", "5:", "5:120:3:2:1", "5:x", "1970-01-01", "1970-01-01T00:00:01", "²"]
)
def test_text_that_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        live.seek_target(text)


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:x", "host:65536", "host:²"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        live.address(text)


@pytest.mark.parametrize("text", ["127.0.0.1:9093", "[::1]:0", "host:65535"])
def test_addresses(text: str) -> None:
    assert text == live.address(text)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "", "²"])
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        live.count(text)
    assert 7 == live.count("7")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidArgument, 2),
        (TopicNotFound, 2),
        (TopicExists, 2),
        (SubscriptionNotFound, 2),
        (ConsumerBusy, 1),
        (SubscriptionFenced, 1),
        (TopicTerminated, 1),
        (AlreadyClosed, 1),
        (Unavailable, 1),
    ],
)
def test_what_the_server_refuses_is_one_line(
    error: type[KledgerError], code: int, capsys: Capture
) -> None:
    async def work() -> None:
        mistake = error("one thing\nand another")
        mistake.add_note("at a place")
        raise mistake

    assert code == live.run_to_end(work())
    assert ("", "kledger: at a place: one thing and another\n") == capsys.readouterr()


def test_result_is_printed_as_lines_or_as_json(capsys: Capture) -> None:
    for as_json in (False, True):
        live.print_result(argparse.Namespace(json=as_json), {"a": 1}, ["a: 1"])
    assert 'a: 1\n{\n  "a": 1\n}\n' == capsys.readouterr().out
