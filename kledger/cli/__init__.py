"""The command line: `kledger NOUN ...`, one module per noun, imported when it is used.

Rule: exit code 0 is success, 1 a failure, 2 a usage error, which is one line on standard error and
changes nothing. Results go to standard output, logs to standard error.
Must not know: what a noun does.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import NoReturn

import kledger

NOUNS = {
    "serve": "run a server",
    "cluster": "make a cluster of brokers without disks, and show its state",
    "doctor": "check a stopped store and list what is damaged",
    "ledger": "inspect the managed ledgers of a stopped store, export what is readable",
    "topic": "list, create, delete, forward and show the topics of a running server",
    "namespace": "list, create and delete namespaces of a running server, and set their policies",
    "named-topic": "show and destroy named topics and subscriber groups of a running server",
    "subscription": "inspect, create, delete and reset the subscriptions of a running server",
    "user": "add, list and remove users, of a stopped store, a cluster or a running server",
    "acl": "add, list and remove access rules, of a stopped store, a cluster or a running server",
    "security": "make certificates, a first user and settings for a server with TLS and logins",
    "client-metrics": "show the metrics that Kafka clients push to a running server",
}

EXIT_FAILURE = 1
EXIT_USAGE = 2


class Parser(argparse.ArgumentParser):
    """A parser that prints a mistake as one line."""

    def error(self, message: str) -> NoReturn:
        """Leave with exit code 2."""
        self.exit(EXIT_USAGE, f"kledger: {message}\n")


def run(arguments: Sequence[str]) -> int:
    """Run one command; return its exit code."""
    parser = Parser(
        prog="kledger",
        usage="kledger NOUN ... (see kledger NOUN --help)",
        description="A Kafka-protocol gateway over a managed ledger.",
        epilog="\n".join(["nouns:", *(f"  {noun:16}{what}" for noun, what in NOUNS.items())]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"kledger {kledger.__version__}")
    parser.add_argument("noun", metavar="NOUN")
    try:
        noun = parser.parse_args(arguments[:1]).noun
        if noun not in NOUNS:
            parser.error(f"unknown command {noun!r}, expected one of: {', '.join(NOUNS)}")
        module = import_module(f"kledger.cli.{noun.replace('-', '_')}")
        noun_parser = Parser(prog=f"kledger {noun}", description=module.__doc__, allow_abbrev=False,
                             formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
        module.add_arguments(noun_parser)
        code: int = module.run(noun_parser.parse_args(arguments[1:]))
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else EXIT_FAILURE
    return code


def add_verbs(
    parser: argparse.ArgumentParser, verbs: Mapping[str, str], exit_codes: str
) -> dict[str, argparse.ArgumentParser]:
    """Declare the verbs of a noun; return their parsers.

    Args:
        parser: of the noun.
        verbs: what each does, beginning with a small letter.
        exit_codes: what they mean, for the help of each verb.
    """
    choices = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    return {
        verb: choices.add_parser(
            verb, help=what, description=f"{what[0].upper()}{what[1:]}.", epilog=exit_codes,
            allow_abbrev=False,
        )
        for verb, what in verbs.items()
    }  # fmt: skip


def usage_error(message: str) -> int:
    """Print the caller's mistake; return the exit code for it."""
    print(f"kledger: {message}", file=sys.stderr)
    return EXIT_USAGE


def failure(message: str) -> int:
    """Print what went wrong; return the exit code for it."""
    print(f"kledger: {message}", file=sys.stderr)
    return EXIT_FAILURE
