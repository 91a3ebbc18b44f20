"""kledger client-metrics: show the metrics that Kafka clients push to a running server.

Clients push the metrics that subscriptions name (kafka-client-metrics.sh creates those); the server
keeps the last push of each client for an hour.
"""

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kledger.cli import live
from kledger.cli.live import print_result
from kledger.cli.plain_text import quoted, table
from kledger.native.broker import MetricsClient
from kledger.native.client.client import Client
from kledger.native.errors import InvalidArgument

if TYPE_CHECKING:
    from kledger.cli.metrics_data import Measurement

_VERBS = {
    "list": "list the clients that can push, one a line, the latest push last",
    "show": "show the last push of a client",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs and their flags."""
    added = live.add_live_verbs(parser, _VERBS)
    added["show"].add_argument("instance", metavar="INSTANCE", help="as `list` shows it")


def run(arguments: argparse.Namespace) -> int:
    """Do one verb; return the exit code."""
    verbs: dict[str, live.Verb] = {"list": list_all, "show": show}
    return live.run(arguments, verbs[arguments.verb])


async def list_all(client: Client, arguments: argparse.Namespace) -> None:
    """List the clients."""
    found = await client.metrics_clients()
    headings = ["INSTANCE", "CLIENT", "SOFTWARE", "ADDRESS", "SUBSCRIPTIONS", "PUSHED"]
    rows = [
        [
            each.instance_id,
            each.client_id,
            each.software,
            each.address,
            ", ".join(each.subscriptions) or None,
            _moment(each.pushed_at_ms),
        ]
        for each in found
    ]
    print_result(arguments, {"clients": list(map(asdict, found))}, table(headings, rows))


async def show(client: Client, arguments: argparse.Namespace) -> None:
    """Show the last push of a client."""
    # Late: the library for the format takes longer to load than all the other verbs need.
    from kledger.cli.metrics_data import parse_metrics

    found = await client.client_metrics(arguments.instance)
    if found is None:
        raise InvalidArgument(f"there is no client with the instance id {arguments.instance!r}")
    measured = parse_metrics(found.data)
    fields = asdict(found.client) | {"metrics": [each.fields() for each in measured]}
    print_result(arguments, fields, _lines(found.client, measured))


def _lines(client: MetricsClient, measured: "list[Measurement]") -> Iterator[str]:
    name = "no client id" if client.client_id is None else quoted(client.client_id)
    yield f"{client.instance_id}: {name}, {quoted(client.software)}, {client.address}"
    if client.pushed_at_ms is None:
        yield "it has pushed nothing"
        return
    yield f"pushed at {_moment(client.pushed_at_ms)} for {', '.join(client.subscriptions) or '-'}"
    rows = [
        [
            each.name,
            None if each.value is None else f"{each.value:.15g}",
            each.count,
            each.unit or None,
            each.kind,
            " ".join(f"{key}={value}" for key, value in each.attributes.items()) or None,
        ]
        for each in measured
    ]
    yield from table(["METRIC", "VALUE", "COUNT", "UNIT", "KIND", "ATTRIBUTES"], rows)


def _moment(time_ms: int | None) -> str | None:
    if time_ms is None:
        return None
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(" ", "seconds")
