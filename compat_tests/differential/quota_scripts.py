"""Quotas, at every version: what can be set, how it is shown, and what too many changes get."""

from __future__ import annotations

import math
from typing import Final

from compat_tests.differential import words
from compat_tests.differential.connection import CLIENT_ID
from compat_tests.differential.scripts import script
from compat_tests.differential.side import Side
from kledger.gateway.wire.messages import k48_describe_client_quotas as k48
from kledger.gateway.wire.messages import k49_alter_client_quotas as k49
from kledger.gateway.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState

DESCRIBE, ALTER = 48, 49
EXACT, DEFAULT, ANY, NO_SUCH_MATCH = range(4)
RATE, CONNECTIONS, MUTATIONS = (
    "producer_byte_rate",
    "connection_creation_rate",
    "controller_mutation_rate",
)
QUOTAS: Final = (RATE, "consumer_byte_rate", "request_percentage", CONNECTIONS, MUTATIONS)
VALUES: Final = (1.0, 1.5, 0.0, -1.0, 2.0**31 - 1, 2.0**31, 2.0**63, math.inf, math.nan)

Parts = tuple[tuple[str, str | None], ...]
CLIENT: Parts = (("client-id", "quoted"),)
USER: Parts = (("user", "quoted"),)
BOTH: Parts = CLIENT + USER
ADDRESS: Parts = (("ip", "192.0.2.1"),)
ENTITIES: Final[dict[str, Parts]] = {
    "client": CLIENT,
    "default client": (("client-id", None),),
    "user": USER,
    "default user": (("user", None),),
    "both": BOTH,
    "address": ADDRESS,
    "default address": (("ip", None),),
    "long address": (("ip", "2001:db8::1"),),
    "another spelling": (("ip", "2001:db8:0:0:0:0:0:1"),),
    "part of an address": (("ip", "192.1"),),
    "not an address": (("ip", "300.0.0.1"),),
    "no such host": (("ip", "nowhere.invalid"),),
    "address and client": ADDRESS + CLIENT,
    "address and user": ADDRESS + USER,
    "nothing": (),
    "no name": (("client-id", ""),),
    "no user": (("user", ""),),
    "no address": (("ip", ""),),
    "unknown kind": (("nope", "quoted"),),
    "one kind twice": (("client-id", "quoted"), ("client-id", "quoted-too")),
}
SHOWN: Final = ("client", "default client", "user", "both", "address", "default address")


def entry(parts: Parts, *ops: tuple[str, float | None]) -> k49.EntryData:
    """Say what changes about an entity; no value takes a quota back."""
    return k49.EntryData(
        entity=[k49.EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
        ops=[k49.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
    )


def alter(*entries: k49.EntryData, is_only_checked: bool = False) -> k49.AlterClientQuotasRequest:
    """Change quotas."""
    return k49.AlterClientQuotasRequest(entries=list(entries), validate_only=is_only_checked)


def describe(
    *components: tuple[str, int, str | None], strict: bool = False
) -> k48.DescribeClientQuotasRequest:
    """Ask for the quotas that fit."""
    asked = [
        k48.ComponentData(entity_type=kind, match_type=match, match=name)
        for kind, match, name in components
    ]
    return k48.DescribeClientQuotasRequest(components=asked, strict=strict)


def quota_of(parts: Parts) -> str:
    """Give a quota that an entity can have."""
    return CONNECTIONS if parts and parts[0][0] == "ip" else RATE


def forget_all(side: Side) -> None:
    """Take everything back, and see that it is gone."""
    entries = [
        entry(parts, *((one, None) for one in QUOTAS)) for parts in ENTITIES.values() if parts
    ]
    side.quietly(alter(*entries), 1)
    side.ask_until("all gone", describe(), 1, lambda answer: not answer.entries)


@script
def quotas_are_altered(side: Side) -> None:
    for version in side.versions(ALTER):
        for label, parts in ENTITIES.items():
            side.ask(label, alter(entry(parts, (quota_of(parts), 1e9))), version)
            side.ask(f"{label}, taken back", alter(entry(parts, (quota_of(parts), None))), version)
        for label, parts in (("client", CLIENT), ("address", ADDRESS)):
            for key in (*QUOTAS, "nope"):
                for value in VALUES:
                    request = alter(entry(parts, (key, value)), is_only_checked=True)
                    side.ask(f"{label} {key} {value}", request, version)
                side.ask(f"{label} without {key}", alter(entry(parts, (key, None))), version)
        side.ask("no entries", alter(), version)
        side.ask("no changes", alter(entry(CLIENT)), version)
        side.ask("a change twice", alter(entry(CLIENT, (RATE, 1.0), (RATE, 2.0))), version)
        twice = alter(
            entry(CLIENT, (RATE, 1e9)), entry(USER, (RATE, 0.0)), entry(BOTH, (RATE, 1e9))
        )
        side.ask("one of three is wrong", twice, version)
        side.ask("twice", alter(entry(CLIENT, (RATE, 1.0)), entry(CLIENT, (RATE, 2.0))), version)
    forget_all(side)


@script
def quotas_are_described(side: Side) -> None:
    for label in SHOWN:
        parts = ENTITIES[label]
        side.quietly(alter(entry(parts, (quota_of(parts), 1e9))), 1)
    side.quietly(alter(entry(CLIENT, ("request_percentage", 12.5), (MUTATIONS, 0.25))), 1)

    def is_whole(answer: k48.DescribeClientQuotasResponse) -> bool:
        return sum(len(one.values) for one in answer.entries or ()) == len(SHOWN) + 2

    for version in side.versions(DESCRIBE):
        side.ask_until("all", describe(), version, is_whole)
        side.ask("all, strictly", describe(strict=True), version)
        for kind in ("client-id", "user", "ip", "nope", ""):
            for match in (EXACT, DEFAULT, ANY, NO_SUCH_MATCH):
                for name in (None, "quoted", "192.0.2.1", "nobody", ""):
                    for strict in (False, True):
                        request = describe((kind, match, name), strict=strict)
                        side.ask(f"{kind!r} {match} {name!r} {strict}", request, version)
        for strict in (False, True):
            both = describe(("client-id", ANY, None), ("user", ANY, None), strict=strict)
            side.ask(f"both {strict}", both, version)
        side.ask("twice", describe(("user", ANY, None), ("user", ANY, None)), version)
        side.ask("address and user", describe(("ip", ANY, None), ("user", ANY, None)), version)
    forget_all(side)


@script
def changes_of_topics_are_limited(side: Side) -> None:
    """Of two partitions a second 22 can be saved; the request costs 30, so the debt is 4 s."""
    client: Parts = (("client-id", CLIENT_ID),)
    side.ask("limit", alter(entry(client, (MUTATIONS, 2.0))), 1)
    side.ask_until("limited", describe(), 1, lambda answer: bool(answer.entries))
    side.ask("within", words.create_topic("quota-first", 30), 7)
    side.ask("beyond", words.create_topic("quota-second", 3), 7)
    side.ask("beyond, for old clients", words.create_topic("quota-third", 8), 5)
    side.ask("nothing is counted", words.create_topic("quota-first", 3), 7)
    side.ask("to spend", words.create_topic("quota-fourth", 30), 5)
    for name, version in (("quota-first", 6), ("quota-third", 5), ("quota-fourth", 4)):
        states = [DeleteTopicState(name=name)]
        request = DeleteTopicsRequest(topics=states, topic_names=[name], timeout_ms=10_000)
        side.ask(f"removal of {name}", request, version)
    side.quietly(alter(entry(client, (MUTATIONS, None))), 1)
    side.ask_until("unlimited", describe(), 1, lambda answer: not answer.entries)
