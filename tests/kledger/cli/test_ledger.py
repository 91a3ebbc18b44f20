"""`kledger ledger list|show|verify`, and what all verbs have in common."""

from pathlib import Path

import pytest

from kledger.cli import run
from kledger.ledger import LedgerStore
from kledger.process import ServerProcess
from tests.kledger.cli.stores import BATCHES, RECORDS, CommandResult, contents, flip, make_store

Capture = pytest.CaptureFixture[str]


def lose_index(spoilt: Path) -> None:
    (spoilt / "index" / "CURRENT").write_bytes(b"")


def test_list(stopped: Path, capsys: Capture) -> None:
    before = contents(stopped)
    result = CommandResult(capsys, "list", "--data", stopped)
    assert (0, []) == (result.code, result.err)
    headings, *lines = result.out
    assert headings.split("  ")[0] == "NAME"
    events, orders, other = [line.split() for line in lines]
    assert ["events/all", "-", "open", "3", "5", "50"] == events[:6]
    assert ["-", "-", "1"] == events[-3:]
    assert ["orders-0", "open", "4", str(BATCHES)] == orders[1:5]
    assert ["0", str(BATCHES * RECORDS), "0"] == orders[-3:]
    assert ["orders-1", "open", "1", "0", "0", "-", "-", "0", "0", "0"] == other[1:]
    assert before == contents(stopped)


def test_list_as_json(stopped: Path, capsys: Capture) -> None:
    result = CommandResult(capsys, "list", "--json", "--data", stopped)
    assert 0 == result.code
    assert ([], None) == (result.json["problems"], result.json["torn_tail"])
    events, orders, _ = result.json["managed_ledgers"]
    assert (None, None, None) == (events["partition"], events["topic"], events["log_end_offset"])
    assert ("orders-0", "orders", True) == (
        orders["partition"], orders["topic"], orders["topic_exists"],
    )  # fmt: skip
    assert orders["name"] == f"orders-0/{orders['topic_id'].replace('-', '')}"
    assert (4, BATCHES, 0, BATCHES * RECORDS) == (
        orders["ledger_count"], orders["entries"], orders["log_start_offset"],
        orders["log_end_offset"],
    )  # fmt: skip


def test_show(stopped: Path, capsys: Capture) -> None:
    result = CommandResult(capsys, "show", "events/all", "--data", stopped)
    assert 0 == result.code
    assert {"name: events/all", "entries: 5", "terminated at: -"} <= set(result.out)
    assert 'property "owner": "me"' in result.out
    headings = result.out.index("LEDGER  ENTRIES  BYTES  CLOSED                         NEWEST" + (
        " " * 25 + "LOG FILES"
    ))  # fmt: skip
    first, _, last = [line.split() for line in result.out[headings + 1 :]]
    assert ["2", "20", "2023-11-14T22:13:20.000+00:00"] == first[1:4]
    assert ["1", "10", "open", "2023-11-14T22:13:20.000+00:00", "00000001.log"] == last[1:]


def test_show_as_json(stopped: Path, capsys: Capture) -> None:
    """A partition may be called as Kafka calls its folder."""
    result = CommandResult(capsys, "show", "orders-0", "--json", "--data", stopped)
    assert 0 == result.code
    first, second, third, last = result.json["ledgers"]
    assert [2, 2, 2, 0] == [each["entries"] for each in (first, second, third, last)]
    assert last["closed_ms"] is None
    assert [str(stopped / "log" / "00000001.log")] == first["log_files"]
    assert {} == result.json["properties"]


def test_verify(stopped: Path, capsys: Capture) -> None:
    result = CommandResult(capsys, "verify", "--data", stopped)
    assert 0 == result.code
    [line] = result.out
    assert line.startswith(f"nothing is damaged: read {BATCHES + 5} entries with ")
    assert line.endswith(" bytes of 3 managed ledgers")
    result = CommandResult(capsys, "verify", "events/all", "--data", stopped)
    expected = "nothing is damaged: read 5 entries with 50 bytes of 1 managed ledgers"
    assert (0, [expected]) == (result.code, result.out)


def test_verify_damage(spoilt: Path, capsys: Capture) -> None:
    flip(spoilt, b"value 10")
    flip(spoilt, b'event "3"')
    result = CommandResult(capsys, "verify", "--data", spoilt)
    assert 1 == result.code
    events, orders, end = result.out
    assert ": managed ledger events/all, entry " in events
    assert ": partition orders-0, entry " in orders
    assert orders.endswith(":1: the data fails its CRC")
    assert end.startswith("2 problems: read ")
    result = CommandResult(capsys, "verify", "orders-0", "--data", spoilt)
    assert (1, [orders]) == (result.code, result.out[:-1])
    result = CommandResult(capsys, "verify", "orders-1", "--data", spoilt)
    assert 0 == result.code
    result = CommandResult(capsys, "verify", "--json", "--data", spoilt)
    assert 1 == result.code
    assert ["the data fails its CRC"] * 2 == [each["reason"] for each in result.json["problems"]]
    assert {"events/all", "orders-0"} == {
        each["managed_ledger"].partition("/")[0].replace("events", "events/all")
        for each in result.json["problems"]
    }


@pytest.mark.parametrize("verb", ["list", "show orders-0", "verify", "dump orders-0"])
def test_lost_index_is_reported_and_the_log_is_read(
    spoilt: Path, capsys: Capture, verb: str
) -> None:
    whole = CommandResult(capsys, *verb.split(), "--data", spoilt)
    lose_index(spoilt)
    before = contents(spoilt)
    result = CommandResult(capsys, *verb.split(), "--data", spoilt)
    assert 1 == result.code
    assert any(
        "a start without this folder makes it anew" in each for each in result.out + result.err
    )
    if verb != "verify":
        assert whole.out == result.out
    assert before == contents(spoilt)


def test_torn_tail_is_a_note(spoilt: Path, capsys: Capture) -> None:
    with (spoilt / "log" / "00000001.log").open("r+b") as log:
        end = len(log.read().rstrip(b"\0"))
        log.seek(end)
        log.write(b"KL\x01\x01torn")
    before = contents(spoilt)
    for verb in (["list"], ["show", "orders-0"], ["verify"], ["dump", "orders-0"]):
        result = CommandResult(capsys, *verb, "--data", spoilt)
        assert 0 == result.code, verb
        note = "note: the next start cuts off the trace of a crash: "
        assert any(note in each for each in result.out + result.err)
    assert (
        str(spoilt) in CommandResult(capsys, "list", "--json", "--data", spoilt).json["torn_tail"]
    )
    assert before == contents(spoilt)


@pytest.mark.parametrize("verb", ["show", "verify", "dump"])
def test_unknown_name_is_a_mistake(stopped: Path, capsys: Capture, verb: str) -> None:
    result = CommandResult(capsys, verb, "nothing", "--data", stopped)
    expected = (
        f"kledger: there is no managed ledger 'nothing' in {stopped}; list them with: kledger "
    )
    assert (2, [], [f"{expected}ledger list --data {stopped}"]) == (
        result.code,
        result.out,
        result.err,
    )


def test_folder_in_use_and_no_store_are_mistakes(tmp_path: Path, capsys: Capture) -> None:
    result = CommandResult(capsys, "list", "--data", tmp_path / "none")
    assert (2, 1) == (result.code, len(result.err))
    with ServerProcess("--data", str(tmp_path / "data")):
        result = CommandResult(capsys, "list", "--data", tmp_path / "data")
    expected = f"kledger: data folder {tmp_path / 'data'} is in use"
    assert (2, [expected]) == (result.code, result.err)


@pytest.mark.parametrize(
    "words",
    [
        [], ["list"], ["show", "--data", "x"], ["nonsense"], ["list", "--data", "x", "--jso"],
        ["dump", "a", "--data", "x", "--limit", "-1"], ["dump", "a", "--data", "x", "--from", "b"],
        ["dump", "a", "--data", "x", "--as", "orders"],
    ],
)  # fmt: skip
def test_mistakes_in_words(words: list[str], capsys: Capture) -> None:
    result = CommandResult(capsys, *words)
    assert (2, [], 1) == (result.code, result.out, len(result.err))
    assert result.err[0].startswith("kledger: ")


@pytest.mark.parametrize("verb", ["list", "show", "verify", "dump"])
def test_every_verb_has_help(verb: str, capsys: Capture) -> None:
    assert 0 == run(["ledger", verb, "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert f"kledger ledger {verb}" in text
    assert "exit code 0: nothing is damaged; 1: something is; 2: a mistake of the caller" in text


async def test_name_of_a_topic_that_was_made_again(tmp_path: Path, capsys: Capture) -> None:
    """Two partitions of one name: the one whose topic exists is meant."""
    await make_store(tmp_path)
    old = f"orders-0/{'0' * 32}"
    async with LedgerStore.open(tmp_path) as store:
        for name in (old, f"gone-0/{'1' * 32}", f"gone-0/{'2' * 32}"):
            await (await store.open_managed_ledger(name)).close()
    result = CommandResult(capsys, "show", "orders-0", "--data", tmp_path)
    assert 0 == result.code
    assert f"name: {old}" not in result.out
    result = CommandResult(capsys, "show", "gone-0", "--data", tmp_path)
    assert 2 == result.code
    assert "gone-0 matches gone-0/1" in result.err[0]
    result = CommandResult(capsys, "show", old, "--data", tmp_path)
    assert (0, "topic exists: False") == (result.code, result.out[4])
