"""kledger named-topic: show and destroy named topics and subscriber groups of a running server.

A named topic is a topic whose partitions are the channels of subscriber groups. A group keeps the
elements that it has not committed, so one that is no longer needed should be destroyed.
"""

import argparse

from kledger.cli import live
from kledger.cli.live import print_result
from kledger.cli.plain_text import table
from kledger.named_topics.model import NO_LIMIT, NO_OFFSET, ChannelEnds, SubscriberGroupInfo
from kledger.native.client.client import Client

_VERBS = {
    "list": "list all named topics, one a line",
    "describe": "show the options of a named topic, and what each group has left of each channel",
    "groups": "list the subscriber groups of a topic with their subscribers and remaining elements",
    "destroy-group": "destroy a group with its commits; its subscribers are disconnected",
    "destroy": "delete a named topic with its elements and groups",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs and their flags."""
    added = live.add_live_verbs(parser, _VERBS)
    for verb, each in added.items():
        if verb != "list":
            each.add_argument("topic", metavar="TOPIC")
    added["destroy-group"].add_argument("group", metavar="GROUP")


def run(arguments: argparse.Namespace) -> int:
    """Do one verb; return the exit code."""
    verbs: dict[str, live.Verb] = {
        "list": list_all, "describe": describe, "groups": groups, "destroy-group": destroy_group,
        "destroy": destroy,
    }  # fmt: skip
    return live.run(arguments, verbs[arguments.verb])


async def list_all(client: Client, arguments: argparse.Namespace) -> None:
    """List the named topics."""
    names = await client.named_topics()
    print_result(arguments, {"named_topics": names}, names)


async def describe(client: Client, arguments: argparse.Namespace) -> None:
    """Show one named topic with every channel of every group."""
    topic = await client.find_named_topic(arguments.topic)
    found = await topic.describe_groups()
    options = {
        "channel_count": topic.channel_count,
        "retain_values": topic.options.retain_values,
        "element_expiry_ms": _or_none(topic.options.element_expiry_ms),
        "subscriber_timeout_ms": topic.options.subscriber_timeout_ms,
        "page_bytes": topic.options.page_bytes,
        "max_unconsumed_bytes": _or_none(topic.options.max_unconsumed_bytes),
        "allow_unowned_commits": topic.options.allow_unowned_commits,
    }
    lines = [f"{name}: {'-' if value is None else value}" for name, value in options.items()]
    headings = ["GROUP", "CHANNEL", "OWNER", "COMMITTED", "HEAD", "END", "REMAINING"]
    rows = [[group.name, *_channel(each).values()] for group in found for each in group.channels]
    lines += table(headings, rows) if rows else []
    fields = {"name": topic.name, "options": options, "groups": [_fields(each) for each in found]}
    print_result(arguments, fields, lines)


async def groups(client: Client, arguments: argparse.Namespace) -> None:
    """List the groups of a named topic."""
    topic = await client.find_named_topic(arguments.topic)
    found = await topic.describe_groups()
    headings = ["GROUP", "SUBSCRIBERS", "REMAINING", "FILTER", "CONVERTER"]
    rows = [
        [
            each.name, len(each.subscribers), _remaining(each), each.filter_name or None,
            each.converter_name or None,
        ]
        for each in found
    ]  # fmt: skip
    fields = {"name": topic.name, "groups": [_fields(each) for each in found]}
    print_result(arguments, fields, table(headings, rows))


async def destroy_group(client: Client, arguments: argparse.Namespace) -> None:
    """Destroy a subscriber group."""
    topic = await client.find_named_topic(arguments.topic)
    await topic.destroy_subscriber_group(arguments.group)
    fields = {"name": topic.name, "group": arguments.group, "done": "destroyed"}
    print_result(arguments, fields, [f"group {arguments.group} of {topic.name}: destroyed"])


async def destroy(client: Client, arguments: argparse.Namespace) -> None:
    """Delete a named topic."""
    topic = await client.find_named_topic(arguments.topic)
    await topic.destroy()
    fields = {"name": topic.name, "done": "destroyed"}
    print_result(arguments, fields, [f"named topic {topic.name}: destroyed"])


def _fields(group: SubscriberGroupInfo) -> dict[str, object]:
    return {
        "name": group.name,
        "is_anonymous": group.is_anonymous,
        "subscribers": list(group.subscribers),
        "filter": group.filter_name or None,
        "converter": group.converter_name or None,
        "remaining": _remaining(group),
        "channels": [_channel(each) for each in group.channels],
    }


def _channel(ends: ChannelEnds) -> dict[str, object]:
    return {
        "channel": ends.channel,
        "owner": ends.owner or None,
        "committed": None if ends.committed_offset == NO_OFFSET else ends.committed_offset,
        "head": ends.head_offset,
        "end": ends.end_offset,
        "remaining": ends.remaining,
    }


def _remaining(group: SubscriberGroupInfo) -> int:
    return sum(each.remaining for each in group.channels)


def _or_none(limit: int) -> int | None:
    return None if limit == NO_LIMIT else limit
