"""The verbs about policies, which `kledger topic` and `kledger namespace` share.

Rule: a verb shows and changes what is set for the topic or namespace that it names, and not what it
inherits.
Must not know: which policies there are.
"""

import argparse
from collections.abc import Mapping

from kledger.cli import live
from kledger.cli.live import print_result
from kledger.native.client.client import Client

VERBS = {
    "policies": "show the policies that are set",
    "set-policy": "set policies, all or none",
    "remove-policy": "remove policies, so that those of the next level are in force",
    "set-data-read-priority": "set which copy of an offloaded ledger is read while both exist",
    "get-data-read-priority": "show which copy is read, if that is set",
    "remove-data-read-priority": "remove the read priority",
}
READ_PRIORITY = "managedLedgerDataReadPriority"
NOT_SET = "not set"


def add_arguments(parsers: Mapping[str, argparse.ArgumentParser]) -> None:
    """Declare the arguments that stand before the name of the topic or namespace."""
    parsers["set-policy"].add_argument(
        "policies", metavar="KEY=VALUE", type=live.assignment, nargs="+",
        help="a policy by Pulsar's name, such as managedLedgerOffloadThresholdInBytes=1000000",
    )  # fmt: skip
    parsers["remove-policy"].add_argument("keys", metavar="KEY", nargs="+")
    parsers["set-data-read-priority"].add_argument(
        "priority", metavar="PRIORITY", help="tiered-first or bookkeeper-first"
    )


def verbs(field: str) -> dict[str, live.Verb]:
    """Return what the verbs do.

    Args:
        field: the argument that has the name, which is also the noun in what they print.
    """

    async def show(client: Client, arguments: argparse.Namespace) -> None:
        name = getattr(arguments, field)
        found = await client.policies(name)
        lines = [f"{key}={value}" for key, value in sorted(found.items())]
        print_result(arguments, {field: name, "policies": found}, lines)

    async def change(
        client: Client, arguments: argparse.Namespace, policies: Mapping[str, str | None]
    ) -> None:
        name = getattr(arguments, field)
        await client.set_policies(name, policies)
        lines = [
            f"{field} {name}: {key} {'removed' if value is None else f'is {value}'}"
            for key, value in policies.items()
        ]
        print_result(arguments, {field: name, "changed": dict(policies)}, lines)

    async def set_policy(client: Client, arguments: argparse.Namespace) -> None:
        await change(client, arguments, dict(arguments.policies))

    async def remove_policy(client: Client, arguments: argparse.Namespace) -> None:
        await change(client, arguments, dict.fromkeys(arguments.keys))

    async def set_priority(client: Client, arguments: argparse.Namespace) -> None:
        await change(client, arguments, {READ_PRIORITY: arguments.priority})

    async def get_priority(client: Client, arguments: argparse.Namespace) -> None:
        name = getattr(arguments, field)
        found = (await client.policies(name)).get(READ_PRIORITY)
        print_result(arguments, {field: name, READ_PRIORITY: found}, [found or NOT_SET])

    async def remove_priority(client: Client, arguments: argparse.Namespace) -> None:
        await change(client, arguments, {READ_PRIORITY: None})

    return {
        "policies": show, "set-policy": set_policy, "remove-policy": remove_policy,
        "set-data-read-priority": set_priority, "get-data-read-priority": get_priority,
        "remove-data-read-priority": remove_priority,
    }  # fmt: skip
