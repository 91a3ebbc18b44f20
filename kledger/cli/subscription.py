"""kledger subscription: inspect, create, delete and reset the subscriptions of a running server.

A subscription keeps the position of its consumers in every partition of a topic. After skip, clear
and reset, its consumers continue at the new position automatically.
"""

import argparse

from kledger.cli import live
from kledger.cli.live import print_result
from kledger.cli.plain_text import part, quoted, table, text_of
from kledger.native.broker import SubscriptionStats
from kledger.native.client.client import Client
from kledger.native.message import Message

_VERBS = {
    "list": "list the durable subscriptions of a topic, one a line",
    "stats": "show backlog and consumers of one subscription, or of all",
    "create": "create a subscription without a consumer, unless it exists",
    "delete": "delete a subscription",
    "skip": "acknowledge the next COUNT messages of every partition",
    "clear": "acknowledge the whole backlog",
    "reset": "set the position: every message from there on is delivered, acknowledged or not",
    "peek": "show the next messages and change nothing",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs and their flags."""
    added = live.add_live_verbs(parser, _VERBS)
    for verb, each in added.items():
        each.add_argument("topic", metavar="TOPIC")
        if verb == "stats":
            each.add_argument("name", metavar="NAME", nargs="?", help="without it, all")
        elif verb != "list":
            each.add_argument("name", metavar="NAME")
    added["create"].add_argument(
        "--from", metavar="TARGET", dest="start", type=live.seek_target, default="latest",
        help=f"where it begins (latest): {live.SEEK_TARGET_HELP}",
    )  # fmt: skip
    added["delete"].add_argument("--force", action="store_true", help="close its consumers")
    added["skip"].add_argument("count", metavar="COUNT", type=live.count)
    added["reset"].add_argument(
        "target", metavar="TARGET", type=live.seek_target, help=live.SEEK_TARGET_HELP
    )
    added["reset"].add_argument(
        "--after", action="store_true", help="begin with the message after TARGET"
    )
    added["peek"].add_argument(
        "--count", metavar="N", type=live.count, default=10,
        help="how many entries of every partition (10); an entry is a batch of messages",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Do one verb; return the exit code."""
    verbs: dict[str, live.Verb] = {
        "list": list_all, "stats": stats, "create": create, "delete": delete, "skip": skip,
        "clear": clear, "reset": reset, "peek": peek,
    }  # fmt: skip
    return live.run(arguments, verbs[arguments.verb])


async def list_all(client: Client, arguments: argparse.Namespace) -> None:
    """List the subscriptions."""
    names = await client.subscriptions(arguments.topic)
    print_result(arguments, {"topic": arguments.topic, "subscriptions": names}, names)


async def stats(client: Client, arguments: argparse.Namespace) -> None:
    """Show the numbers of one subscription, or of all."""
    topic, name = arguments.topic, arguments.name
    names = [name] if name is not None else await client.subscriptions(topic)
    found = [_fields(each, await client.subscription_stats(topic, each)) for each in names]
    columns = {
        "name": "NAME", "type": "TYPE", "backlog": "BACKLOG", "unacknowledged": "UNACKNOWLEDGED",
        "redelivery_rate": "REDELIVERED/S", "revision_num": "REVISIONS", "consumers": "CONSUMERS",
    }  # fmt: skip
    rows = [[_cell(each[column]) for column in columns] for each in found]
    lines = list(table(list(columns.values()), rows))
    lines += [f"{each['name']} is being reset" for each in found if each["is_under_revision"]]
    print_result(arguments, found[0] if name is not None else {"subscriptions": found}, lines)


async def create(client: Client, arguments: argparse.Namespace) -> None:
    """Create a subscription."""
    await client.create_subscription(arguments.topic, arguments.name, arguments.start)
    _print_done(arguments, "exists")


async def delete(client: Client, arguments: argparse.Namespace) -> None:
    """Delete a subscription."""
    await client.delete_subscription(arguments.topic, arguments.name, force=arguments.force)
    _print_done(arguments, "deleted")


async def skip(client: Client, arguments: argparse.Namespace) -> None:
    """Acknowledge the next messages."""
    await client.skip_messages(arguments.topic, arguments.name, arguments.count)
    _print_done(arguments, f"skipped in every partition: {arguments.count}")


async def clear(client: Client, arguments: argparse.Namespace) -> None:
    """Acknowledge the whole backlog."""
    await client.clear_backlog(arguments.topic, arguments.name)
    _print_done(arguments, "backlog cleared")


async def reset(client: Client, arguments: argparse.Namespace) -> None:
    """Set the position."""
    await client.reset_subscription(
        arguments.topic, arguments.name, arguments.target, inclusive=not arguments.after
    )
    _print_done(arguments, f"reset to {arguments.target}")


async def peek(client: Client, arguments: argparse.Namespace) -> None:
    """Show the next messages."""
    messages = await client.peek_messages(arguments.topic, arguments.name, arguments.count)
    print_result(arguments, {"messages": list(map(_message, messages))}, map(_line, messages))


def _print_done(arguments: argparse.Namespace, what: str) -> None:
    topic, name = arguments.topic, arguments.name
    fields = {"topic": topic, "subscription": name, "done": what}
    print_result(arguments, fields, [f"subscription {name} of {topic}: {what}"])


def _fields(name: str, found: SubscriptionStats) -> dict[str, object]:
    return {
        "name": name,
        "type": found.type,
        "backlog": found.backlog,
        "unacknowledged": found.unacknowledged,
        "consumers": list(found.consumers),
        "redelivery_rate": found.redelivery_rate,
        "revision_num": found.revision_num,
        "is_under_revision": found.is_under_revision,
    }


def _cell(value: object) -> object:
    match value:
        case list():
            return ", ".join(value) or None
        case float():
            return f"{value:.1f}"
        case _:
            return value


def _message(message: Message) -> dict[str, object]:
    """Return the fields of a message; bytes that are no text as escaped text."""
    return {
        "id": str(message.id),
        "partition": message.partition,
        "offset": message.offset,
        "publish_timestamp": message.publish_timestamp,
        "event_timestamp": message.event_timestamp,
        "key": text_of(message.key),
        "value": text_of(message.value),
        "headers": [[name, text_of(value)] for name, value in message.headers],
    }


def _line(message: Message) -> str:
    parts = [
        f"{message.id} partition={message.partition} offset={message.offset}",
        f"timestamp={message.publish_timestamp}",
        part("key", message.key),
        part("value", message.value),
    ]
    parts += [part(f"header:{quoted(name)}", value) for name, value in message.headers]
    return " ".join(parts)
