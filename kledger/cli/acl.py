"""kledger acl: add, list and remove access rules, of a stopped store, a cluster or a server.

A running server (`--kafka`) is asked as Kafka's tools do (`kafka-acls`). `add` and `remove` take
one rule, or several that differ by their operations; `list` shows all.

Exit code 0: done; 1: there is no such rule, the server refuses it, or the store is damaged; 2: a
mistake of the caller: no such operation, a store in use.
"""

import argparse
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

from kledger.cli import add_verbs, failure
from kledger.cli.access_target import add_target_arguments, run_on_target
from kledger.cli.plain_text import table
from kledger.cli.running_server import RunningRules, running_server
from kledger.cli.stored_tables import stored_tables
from kledger.runtime.clock import SystemClock
from kledger.security.acl_state import (
    ANY_HOST,
    CLUSTER_NAME,
    OPERATIONS,
    AclFilter,
    AclRule,
    InvalidRule,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    check_rule,
)
from kledger.security.authorizer import Authorizer

_VERBS = {
    "add": "add a rule; one that exists stays as it is",
    "list": "list the rules, one a line",
    "remove": "remove a rule",
}
_EXIT_CODES = "exit code 0: done; 1: there is no such rule; 2: a mistake of the caller"
_COLUMNS = ("principal", "host", "permission", "operation", "resource", "pattern", "name")
_RESOURCES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user_principal": ResourceType.USER,
}
"""Types of resources by their flag, as `kafka-acls` calls it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs and their flags."""
    added = add_verbs(parser, _VERBS, _EXIT_CODES)
    for verb, each in added.items():
        add_target_arguments(each)
        if verb != "list":
            _add_rule_arguments(each)
    added["list"].add_argument("--json", action="store_true", help="print one JSON document")


def _add_rule_arguments(parser: argparse.ArgumentParser) -> None:
    whose = parser.add_mutually_exclusive_group(required=True)
    whose.add_argument("--allow", metavar="PRINCIPAL", help="allow User:NAME, or User:* for all")
    whose.add_argument("--deny", metavar="PRINCIPAL", help="deny a user likewise")
    parser.add_argument(
        "--operation", metavar="NAME", action="append", required=True, dest="operations",
        help="Read, Write, Describe and so on, as in kafka-acls, or All; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--host", metavar="ADDRESS", default=ANY_HOST, help="of the client (default: any)"
    )
    what = parser.add_mutually_exclusive_group(required=True)
    for name in _RESOURCES:
        flag, kind = name.replace("_", "-"), name.replace("_", " ")
        what.add_argument(f"--{flag}", metavar="NAME", help=f"a {kind}; * for all")
    what.add_argument("--cluster", action="store_true", help="the cluster")
    parser.add_argument(
        "--prefixed", action="store_true", help="all whose names begin with NAME, not this one"
    )


class RuleTable(Protocol):
    """The rules of a store, or of a running server."""

    async def find(self, asked: AclFilter) -> list[AclRule]:
        """Return the rules that match a filter."""
        ...

    async def create(self, rules: Iterable[AclRule]) -> None:
        """Create rules; those that exist stay as they are."""
        ...

    async def delete(self, filters: Sequence[AclFilter]) -> object:
        """Delete the rules that match one of the filters."""
        ...


class _StoredRules:
    """The rules of a stopped store."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self.create, self.delete = authorizer.create, authorizer.delete

    async def find(self, asked: AclFilter) -> list[AclRule]:
        return self._authorizer.find(asked)


def run(arguments: argparse.Namespace) -> int:
    """Do one verb; return the exit code."""
    return run_on_target(arguments, lambda: _run(arguments), creates=arguments.verb == "add")


async def _run(arguments: argparse.Namespace) -> int:
    verbs: dict[str, Callable[[RuleTable, argparse.Namespace], Awaitable[int]]] = {
        "add": _add, "list": _list, "remove": _remove,
    }  # fmt: skip
    arguments.rules = [] if arguments.verb == "list" else _rules(arguments)
    async with _table(arguments) as rules:
        return await verbs[arguments.verb](rules, arguments)


@asynccontextmanager
async def _table(arguments: argparse.Namespace) -> AsyncIterator[RuleTable]:
    if arguments.kafka is None:
        async with stored_tables(arguments.data, arguments.cluster_url) as tables:
            yield _StoredRules(Authorizer(tables, SystemClock()))
    else:
        with running_server(arguments.kafka, arguments.command_config) as brokers:
            yield RunningRules(brokers)


def _rules(arguments: argparse.Namespace) -> list[AclRule]:
    """Return a rule for each operation.

    Raises:
        InvalidRule: one of them cannot be created.
    """
    pattern = _pattern(arguments)
    is_denial = arguments.allow is None
    rules = [
        AclRule(
            pattern,
            arguments.deny if is_denial else arguments.allow,
            arguments.host,
            _operation(name, pattern.resource_type),
            Permission.DENY if is_denial else Permission.ALLOW,
        )
        for name in arguments.operations
    ]
    for rule in rules:
        check_rule(rule)
    return rules


def _pattern(arguments: argparse.Namespace) -> ResourcePattern:
    pattern_type = PatternType.PREFIXED if arguments.prefixed else PatternType.LITERAL
    for flag, resource_type in _RESOURCES.items():
        name: str | None = getattr(arguments, flag)
        if name is not None:
            return ResourcePattern(resource_type, pattern_type, name)
    if arguments.prefixed:
        raise InvalidRule("--prefixed: the cluster has one name")
    return ResourcePattern(ResourceType.CLUSTER, PatternType.LITERAL, CLUSTER_NAME)


def _operation(name: str, resource_type: ResourceType) -> Operation:
    """Return the operation that `kafka-acls` calls so, in upper or lower case."""
    known = {_tool_name(each).lower(): each for each in (*OPERATIONS[resource_type], Operation.ALL)}
    if name.lower() not in known:
        kind, expected = resource_type.name.lower(), ", ".join(map(_tool_name, known.values()))
        raise InvalidRule(f"--operation: a {kind} has {expected}; got {name!r}")
    return known[name.lower()]


def _tool_name(operation: Operation) -> str:
    return operation.name.title().replace("_", "")


async def _add(rules: RuleTable, arguments: argparse.Namespace) -> int:
    await rules.create(arguments.rules)
    return 0


async def _list(rules: RuleTable, arguments: argparse.Namespace) -> int:
    rows = sorted(
        (
            rule.principal,
            rule.host,
            rule.permission.name.title(),
            _tool_name(rule.operation),
            rule.pattern.resource_type.name.lower(),
            rule.pattern.pattern_type.name.lower(),
            rule.pattern.name,
        )
        for rule in await rules.find(AclFilter())
    )
    if arguments.json:
        json.dump([dict(zip(_COLUMNS, row, strict=True)) for row in rows], sys.stdout)
        print()
    elif rows:
        print("\n".join(table([each.upper() for each in _COLUMNS], rows)))
    return 0


async def _remove(rules: RuleTable, arguments: argparse.Namespace) -> int:
    filters = [
        AclFilter(
            resource_type=rule.pattern.resource_type,
            pattern_type=rule.pattern.pattern_type,
            name=rule.pattern.name,
            principal=rule.principal,
            host=rule.host,
            operation=rule.operation,
            permission=rule.permission,
        )
        for rule in arguments.rules
    ]
    missing = [each for each in filters if not await rules.find(each)]
    if missing:
        names = ", ".join(_tool_name(each.operation) for each in missing)
        return failure(f"{missing[0].principal}: there is no such rule for {names}")
    await rules.delete(filters)
    return 0
