"""What all commands share that connect to a running server.

Rule: one command is one connection, and an error of the server is one line. A name that does not
exist, or is invalid, is a mistake of the caller; everything else is a failure.
Must not know: what a command does.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

import kledger
from kledger.cli import add_verbs, failure, usage_error
from kledger.cli.command_config import read_command_config
from kledger.native.client.client import Client
from kledger.native.errors import (
    InvalidArgument,
    KledgerError,
    NamespaceExists,
    SubscriptionNotFound,
    TopicExists,
    TopicNotFound,
)
from kledger.native.message_id import MessageId
from kledger.setting_values import SettingError, split_address

DEFAULT_ADDRESS = "127.0.0.1:9093"
USAGE_ERRORS = (
    InvalidArgument, NamespaceExists, SubscriptionNotFound, TopicExists, TopicNotFound,
)  # fmt: skip
EXIT_CODES = "exit code 0: done; 1: the server failed; 2: a mistake of the caller"
SEEK_TARGET_HELP = (
    "earliest, latest, a time (milliseconds since 1970, or like 2026-01-31T12:00:00Z), or a "
    "message LEDGER:ENTRY[:INDEX[:PARTITION]]"
)

Verb: TypeAlias = Callable[[Client, argparse.Namespace], Awaitable[None]]


def add_live_verbs(
    parser: argparse.ArgumentParser, verbs: dict[str, str]
) -> dict[str, argparse.ArgumentParser]:
    """Declare verbs with the flags that all of them take; return their parsers."""
    added = add_verbs(parser, verbs, EXIT_CODES)
    for each in added.values():
        each.add_argument(
            "--native", metavar="HOST:PORT", type=address, default=DEFAULT_ADDRESS,
            help=f"address of the server's native listener ({DEFAULT_ADDRESS})",
        )  # fmt: skip
        each.add_argument(
            "--command-config", metavar="FILE", type=Path,
            help="Kafka's client properties: security.protocol, sasl.mechanism, ssl.truststore.…",
        )  # fmt: skip
        each.add_argument("--json", action="store_true", help="print one JSON document")
    return added


def run(arguments: argparse.Namespace, verb: Verb) -> int:
    """Do one verb over a connection; return the exit code."""

    async def connected() -> None:
        config = read_command_config(arguments.command_config)
        url = f"{config.scheme}{arguments.native}"
        async with kledger.connect(url, **config.options()) as client:
            await verb(client, arguments)

    return run_to_end(connected())


def run_to_end(work: Awaitable[None]) -> int:
    """Run a command to its end; return the exit code."""

    async def working() -> None:
        await work

    try:
        asyncio.run(working())
        sys.stdout.flush()
    except USAGE_ERRORS as error:
        return usage_error(_line(error))
    except KledgerError as error:
        return failure(_line(error))
    except BrokenPipeError:  # the reader of the pipe, such as `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def print_result(arguments: argparse.Namespace, fields: object, lines: Iterable[str]) -> None:
    """Print a result: its fields as JSON with --json, or its lines."""
    if arguments.json:
        print(json.dumps(fields, indent=2))
        return
    for line in lines:
        print(line)


def address(text: str) -> str:
    """Return HOST:PORT as it was given, for argparse."""
    try:
        split_address("address", text)
    except SettingError:
        raise argparse.ArgumentTypeError(f"expected HOST:PORT, got {text!r}") from None
    return text


def assignment(text: str) -> tuple[str, str]:
    """Return KEY and VALUE of KEY=VALUE, for argparse."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    return key, value


def count(text: str) -> int:
    """Return a number from 1 on, for argparse."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, got {text!r}")
    return int(text)


def seek_target(text: str) -> MessageId | int | str:
    """Return a seek target, for argparse; see `SEEK_TARGET_HELP`."""
    if text in {"earliest", "latest"}:
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    parts = text.split(":")
    if 2 <= len(parts) <= 4 and all(part.isascii() and part.isdigit() for part in parts):
        ledger_id, entry_id, *rest = map(int, parts)
        index, partition = [*rest, *[-1, 0][len(rest) :]]
        return MessageId(ledger_id, entry_id, index, partition)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected {SEEK_TARGET_HELP}, got {text!r}") from None
    if moment.tzinfo is None:
        raise argparse.ArgumentTypeError(f"expected a time with its zone, like {text}Z")
    return round(moment.timestamp() * 1000)


def _line(error: BaseException) -> str:
    notes: list[str] = getattr(error, "__notes__", [])
    text = ": ".join([*notes, str(error) or type(error).__name__])
    return " ".join(text.split())
