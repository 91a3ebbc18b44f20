"""kledger topic: list, create, delete, forward and show the topics of a running server.

`forward` copies a topic to another one, of this server or of another, in order and at least once,
for as long as it runs. A durable subscription of the source keeps its position, so a restart
continues where it ended. Message keys, headers, timestamps and partitions stay the same. While the
target's server is down, at the start too, `forward` retries.
"""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from kledger.cli import live, policies, usage_error
from kledger.cli.command_config import read_command_config
from kledger.cli.live import print_result
from kledger.cli.plain_text import table
from kledger.cli.topic_table import show_table
from kledger.native.broker import LedgerStats
from kledger.native.client.client import Client
from kledger.native.errors import KledgerError, Unavailable
from kledger.native.forwarder.topic_forwarder import ForwardRequest, TopicForwarder
from kledger.native.message_id import MessageId
from kledger.native.rpc.client import RpcClient
from kledger.native.rpc.client_credentials import ClientCredentials
from kledger.native.rpc.routing_broker import RoutingBroker
from kledger.runtime.clock import SystemClock
from kledger.runtime.entropy import SystemEntropy

logger = logging.getLogger(__name__)

TARGET_LOOK_MS = 2_000
"""How long `forward` connects to the server of its target before it logs that it retries."""

_VERBS = {
    "list": "list all topics, one a line",
    "stats": "show the partitions of a topic, and its subscriptions",
    "create": "create a topic",
    "delete": "delete a topic with its subscriptions",
    "terminate": "refuse new messages of a topic; it can still be read",
    "compact": "keep the newest message of each key; ends when that is done",
    "compaction-status": "show how far the last compaction of a topic has come",
    "offload": "copy closed ledgers to the tier; ends when that is done",
    "offload-status": "show how far the last offload of a topic has come",
    **policies.VERBS,
    "table": "show a topic as a table: the last value of each key",
    "forward": "copy a topic to another one until the command is stopped",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs and their flags."""
    added = live.add_live_verbs(parser, _VERBS)
    policies.add_arguments(added)
    for verb, each in added.items():
        if verb not in {"list", "forward"}:
            each.add_argument("topic", metavar="TOPIC")
    added["create"].add_argument("--partitions", metavar="N", type=live.count, default=1)
    added["create"].add_argument(
        "--config", metavar="KEY=VALUE", type=live.assignment, action="append", default=[],
        help="a topic setting by Kafka's name; may be repeated",
    )  # fmt: skip
    which = added["offload"].add_mutually_exclusive_group()
    which.add_argument(
        "--until", metavar="ID", type=_message_id,
        help="only ledgers before the one of this message, LEDGER:ENTRY[:INDEX[:PARTITION]]",
    )  # fmt: skip
    which.add_argument(
        "--keep-bytes",
        metavar="N",
        type=_size,
        help="in each partition the newest ledgers stay that have at least N bytes together",
    )
    added["table"].add_argument(
        "--follow", action="store_true",
        help="go on with a line for each update until the command is stopped; with --json each "
        "row is a JSON document on one line",
    )  # fmt: skip
    forward_parser = added["forward"]
    forward_parser.add_argument("source", metavar="SOURCE", help="a topic of the server")
    forward_parser.add_argument(
        "target", metavar="TARGET", help="created with as many partitions if it does not exist"
    )
    forward_parser.add_argument(
        "--to", metavar="HOST:PORT", type=live.address, help="the server of TARGET, if another"
    )
    forward_parser.add_argument(
        "--to-command-config", metavar="FILE", type=Path,
        help="as --command-config, for the server of TARGET, which gets no credentials otherwise",
    )  # fmt: skip
    forward_parser.add_argument(
        "--subscription", metavar="NAME",
        help="keeps the position in SOURCE (forward-TARGET, or forward-TARGET@HOST:PORT with --to)",
    )  # fmt: skip
    forward_parser.add_argument(
        "--from", choices=("earliest", "latest"), dest="start", default="earliest",
        help="where a new subscription begins (earliest)",
    )  # fmt: skip
    forward_parser.add_argument(
        "--until-caught-up", action="store_true",
        help="end when everything is forwarded that SOURCE had at the start",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Do one verb; return the exit code."""
    verbs: dict[str, live.Verb] = {
        "list": list_all, "stats": stats, "create": create, "delete": delete,
        "terminate": terminate, "compact": compact, "compaction-status": compaction_status,
        "offload": offload, "offload-status": offload_status,
        "table": show_table, **policies.verbs("topic"),
    }  # fmt: skip
    if arguments.verb == "forward":
        return forward(arguments)
    return live.run(arguments, verbs[arguments.verb])


async def list_all(client: Client, arguments: argparse.Namespace) -> None:
    """List the topics."""
    names = await client.topics()
    print_result(arguments, {"topics": names}, names)


async def stats(client: Client, arguments: argparse.Namespace) -> None:
    """Show the numbers of one topic."""
    found = await client.topic_stats(arguments.topic)
    partitions = [
        {
            "partition": index,
            **each._asdict(),
            "ledgers": [ledger._asdict() for ledger in each.ledgers],
            "reads": dict(each.reads),
        }
        for index, each in enumerate(found.partitions)
    ]
    headings = ["PARTITION", "LOG START", "LOG END", "BYTES"]
    rows = [[index, *each[:3]] for index, each in enumerate(found.partitions)]
    lines = list(table(headings, rows))
    lines += [f"subscription: {name}" for name in found.subscriptions]
    fields = {
        "name": found.name, "partitions": partitions, "subscriptions": list(found.subscriptions),
    }  # fmt: skip
    print_result(arguments, fields, lines)


async def create(client: Client, arguments: argparse.Namespace) -> None:
    """Create a topic."""
    topic, partitions = arguments.topic, arguments.partitions
    await client.create_topic(topic, partitions=partitions, config=dict(arguments.config))
    fields = {"topic": topic, "partitions": partitions}
    print_result(arguments, fields, [f"topic {topic}: created, partitions: {partitions}"])


async def delete(client: Client, arguments: argparse.Namespace) -> None:
    """Delete a topic."""
    await client.delete_topic(arguments.topic)
    print_result(arguments, {"topic": arguments.topic}, [f"topic {arguments.topic}: deleted"])


async def terminate(client: Client, arguments: argparse.Namespace) -> None:
    """Refuse new messages of a topic."""
    ends = [str(each.position) for each in await client.terminate(arguments.topic)]
    lines = [f"topic {arguments.topic}: terminated"]
    lines += [f"partition {partition} ends at {end}" for partition, end in enumerate(ends)]
    print_result(arguments, {"topic": arguments.topic, "ends": ends}, lines)


async def compact(client: Client, arguments: argparse.Namespace) -> None:
    """Compact a topic, and show its status."""
    await client.compact(arguments.topic)
    await compaction_status(client, arguments)


async def compaction_status(client: Client, arguments: argparse.Namespace) -> None:
    """Show how far the compaction of a topic has come."""
    found = await client.compaction_status(arguments.topic)
    horizon = [None if each is None else str(each.position) for each in found.horizon]
    fields = {**asdict(found), "topic": arguments.topic, "horizon": horizon}
    lines = [f"topic {arguments.topic}: {found.state}"]
    if found.error:
        lines.append(f"error: {found.error}")
    times = (("started", found.started_ms), ("ended", found.ended_ms))
    lines += [f"{name}: {_time_text(time_ms)}" for name, time_ms in times if time_ms is not None]
    lines += [
        f"partition {partition}: compacted up to {end or '-'}"
        for partition, end in enumerate(horizon)
    ]
    print_result(arguments, fields, lines)


async def offload(client: Client, arguments: argparse.Namespace) -> None:
    """Offload a topic, and show its status."""
    topic = arguments.topic
    if arguments.keep_bytes is None:
        ends = await client.offload(topic, until=arguments.until)
    else:
        stats = await client.topic_stats(topic)
        for partition, each in enumerate(stats.partitions):
            if each.ledgers:
                kept = first_kept(each.ledgers, arguments.keep_bytes)
                await client.offload(topic, until=MessageId(kept, 0, partition=partition))
        ends = []
    fields = {"ends": [None if each is None else str(each.position) for each in ends]}
    await _show_offload_status(client, arguments, fields)


async def offload_status(client: Client, arguments: argparse.Namespace) -> None:
    """Show how far the offloading of a topic has come."""
    await _show_offload_status(client, arguments, {})


async def _show_offload_status(
    client: Client, arguments: argparse.Namespace, more: Mapping[str, object]
) -> None:
    found = await client.offload_status(arguments.topic)
    lines = [f"topic {arguments.topic}: {found.state}"]
    if found.error:
        lines.append(f"error: {found.error}")
    lines.append(f"closed ledgers that are not offloaded: {found.ledgers_left}")
    print_result(arguments, {"topic": arguments.topic, **asdict(found), **more}, lines)


def first_kept(ledgers: Sequence[LedgerStats], keep_bytes: int) -> int:
    """Return the oldest ledger that stays if the newest ones keep at least that many bytes."""
    size, kept = 0, ledgers[-1].ledger_id
    for each in reversed(ledgers):
        if size >= keep_bytes:
            break
        size, kept = size + each.size, each.ledger_id
    return kept


def _size(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"expected a number from 0 on, got {text!r}")
    return int(text)


def _message_id(text: str) -> MessageId:
    found = live.seek_target(text)
    if not isinstance(found, MessageId):
        raise argparse.ArgumentTypeError(f"expected LEDGER:ENTRY, got {text!r}")
    return found


def _time_text(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")


def forward(arguments: argparse.Namespace) -> int:
    """Copy a topic until a signal stops it; return the exit code."""
    source, target, to = arguments.source, arguments.target, arguments.to
    is_one_server = to is None or to == arguments.native
    if is_one_server and source == target:
        return usage_error(f"topic {source} cannot be forwarded to itself")
    name = f"forward-{target}" if is_one_server else f"forward-{target}@{to}"
    request = ForwardRequest(
        source=source,
        target=target,
        subscription=arguments.subscription or name,
        start=arguments.start,
    )
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="kledger: %(message)s")
    return live.run_to_end(_forward(arguments, request, arguments.native if is_one_server else to))


async def _forward(arguments: argparse.Namespace, request: ForwardRequest, to: str) -> None:
    async with AsyncExitStack() as stack:
        credentials = read_command_config(arguments.command_config).credentials
        source, here = await stack.enter_async_context(_broker(arguments.native, credentials))
        await source.connect()
        is_one_server = to == arguments.native
        target, there = source, here
        if not is_one_server:
            credentials = read_command_config(arguments.to_command_config).credentials
            target, there = await stack.enter_async_context(_broker(to, credentials))
        forwarder = TopicForwarder(
            request, here, there, clock=SystemClock(), entropy=SystemEntropy()
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, forwarder.close)
        try:
            await target.connect(timeout_ms=TARGET_LOOK_MS)
        except Unavailable as error:
            logger.warning("retrying, as the server of %s is down: %s", request.target, error)
        await forwarder.open()
        try:
            await forwarder.run(until_caught_up=arguments.until_caught_up)
        except live.USAGE_ERRORS as error:
            # The command was right: a topic that was deleted since is no mistake of the caller.
            raise _ended(error) from error
        batches = forwarder.forwarded_count
        fields = {"source": request.source, "target": request.target, "batches": batches}
        line = f"topic {request.source}: forwarded to {request.target}, batches: {batches}"
        print_result(arguments, fields, [line])


def _ended(error: KledgerError) -> KledgerError:
    ended = KledgerError(str(error))
    for note in getattr(error, "__notes__", []):
        ended.add_note(note)
    return ended


@asynccontextmanager
async def _broker(
    address: str, credentials: ClientCredentials
) -> AsyncIterator[tuple[RpcClient, RoutingBroker]]:
    """Provide a client that connects at its first request, or when `connect` is called.

    Yields:
        The client of the named broker, and all brokers of its cluster, which may be it alone.
    """
    connect = partial(RpcClient, credentials=credentials)
    first = connect(address)
    broker = RoutingBroker(first, connect)
    try:
        yield first, broker
    finally:
        await broker.close()
