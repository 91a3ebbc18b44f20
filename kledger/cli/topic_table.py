"""kledger topic table: a topic as a table, the last value of each key.

Rule: rows go to standard output, sorted by key; with --follow a line for each update comes behind
them, none lost and none twice. The progress of loading is shown on standard error if that is a
terminal.
Must not know: how a table view is loaded.
"""

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple, TextIO

from kledger.cli.live import print_result
from kledger.cli.plain_text import shown, table, text_of
from kledger.native.client.client import Client
from kledger.native.client.table_view import TableView
from kledger.native.message import Message
from kledger.runtime.tasks import Supervisor

HEADINGS = ["KEY", "VALUE", "OFFSET", "TIME"]
BAR_WIDTH = 30


class Row(NamedTuple):
    """A key and its last message; None: the key was removed."""

    key: bytes
    message: Message | None


async def show_table(client: Client, arguments: argparse.Namespace) -> None:
    """Show a topic as a table; with --follow until a signal ends the command."""
    topic = arguments.topic
    stats = await client.topic_stats(topic)
    total = sum(each.end_offset - each.log_start_offset for each in stats.partitions)
    bar = ProgressBar(sys.stderr, total)
    async with await client.create_table_view(
        topic, keep_messages=True, on_load=bar.show if sys.stderr.isatty() else None
    ) as view:
        bar.clear()
        rows = [Row(key, view.get_message(key)) for key in sorted(view)]
        if not arguments.follow:
            _print_all(arguments, rows)
        else:
            await _follow(view, arguments, rows)


class ProgressBar:
    """One line of a terminal."""

    def __init__(self, out: TextIO, total: int) -> None:
        """Args: total: the number of records to read, about."""
        self._out = out
        self._total = total
        self._line = ""

    def show(self, count: int) -> None:
        """Show that so many records were read."""
        share = min(count / self._total, 1) if self._total else 1.0
        done = "#" * int(BAR_WIDTH * share)
        line = f"[{done:{BAR_WIDTH}}] {share:4.0%} of {self._total:,} records"
        if line != self._line:
            self._line = line
            self._out.write(f"\r{line}")
            self._out.flush()

    def clear(self) -> None:
        """Remove the line."""
        if self._line:
            self._out.write(f"\r{' ' * len(self._line)}\r")
            self._out.flush()
            self._line = ""


async def _follow(view: TableView, arguments: argparse.Namespace, rows: list[Row]) -> None:
    """Print the rows, then each update. Raises BrokenPipeError: the output was closed."""
    supervisor = Supervisor()
    broken: list[BrokenPipeError] = []

    def stop() -> None:
        supervisor.spawn(view.close(), "end of the table")

    def show(key: bytes, _value: bytes | None) -> None:
        try:
            print(_line(arguments, Row(key, view.get_message(key))), flush=True)
        except BrokenPipeError as error:  # an error of a listener would only be logged
            broken.append(error)
            stop()

    view.listen(show)  # in one step with the rows
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    if arguments.json:
        for row in rows:
            print(_line(arguments, row))
    else:
        _print_all(arguments, rows)
    sys.stdout.flush()
    try:
        await view.wait_ended()
    finally:
        await supervisor.close()
    if broken:
        raise broken[0]


def _print_all(arguments: argparse.Namespace, rows: Sequence[Row]) -> None:
    fields = {"topic": arguments.topic, "rows": [_fields(row) for row in rows]}
    print_result(arguments, fields, table(HEADINGS, [_cells(row) for row in rows]))


def _line(arguments: argparse.Namespace, row: Row) -> str:
    if arguments.json:
        return json.dumps(_fields(row))
    return "  ".join("-" if cell is None else str(cell) for cell in _cells(row))


def _fields(row: Row) -> dict[str, object]:
    key, message = row
    if message is None:
        return {"key": text_of(key), "value": None}
    return {
        "key": text_of(key),
        "value": text_of(message.value),
        "partition": message.partition,
        "offset": message.offset,
        "publish_timestamp": message.publish_timestamp,
    }


def _cells(row: Row) -> list[object]:
    key, message = row
    if message is None or message.value is None:
        return [shown(key), None, None, None]
    moment = datetime.fromtimestamp(message.publish_timestamp / 1000, UTC)
    time = moment.isoformat(" ", "milliseconds")
    return [shown(key), shown(message.value), message.offset, time]
