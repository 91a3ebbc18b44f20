"""kledger namespace: list, create and delete the namespaces of a running server, set policies.

A topic of another namespace than public/default is called TENANT/NAMESPACE/TOPIC by every client. A
policy of a namespace is in force for its topics that do not have their own.
"""

import argparse

from kledger.cli import live, policies
from kledger.cli.live import print_result
from kledger.native.client.client import Client

_VERBS = {
    "list": "list all namespaces, one a line",
    "create": "create a namespace",
    "delete": "delete a namespace without topics, and its policies",
    **policies.VERBS,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs and their flags."""
    added = live.add_live_verbs(parser, _VERBS)
    policies.add_arguments(added)
    for verb, each in added.items():
        if verb != "list":
            each.add_argument("namespace", metavar="TENANT/NAMESPACE", type=_namespace)


def run(arguments: argparse.Namespace) -> int:
    """Do one verb; return the exit code."""
    verbs: dict[str, live.Verb] = {
        "list": list_all, "create": create, "delete": delete, **policies.verbs("namespace"),
    }  # fmt: skip
    return live.run(arguments, verbs[arguments.verb])


async def list_all(client: Client, arguments: argparse.Namespace) -> None:
    """List the namespaces."""
    names = await client.namespaces()
    print_result(arguments, {"namespaces": names}, names)


async def create(client: Client, arguments: argparse.Namespace) -> None:
    """Create a namespace."""
    name = arguments.namespace
    await client.create_namespace(name)
    print_result(arguments, {"namespace": name}, [f"namespace {name}: created"])


async def delete(client: Client, arguments: argparse.Namespace) -> None:
    """Delete a namespace."""
    name = arguments.namespace
    await client.delete_namespace(name)
    print_result(arguments, {"namespace": name}, [f"namespace {name}: deleted"])


def _namespace(text: str) -> str:
    """Return a name with one slash, for argparse: the server takes any other for a topic."""
    if text.count("/") != 1:
        raise argparse.ArgumentTypeError(f"expected TENANT/NAMESPACE, got {text!r}")
    return text
