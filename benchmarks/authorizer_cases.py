"""Authorizer cases: what access rules cost a server under small requests.

Rule: two equal servers get the load alternately, one without an authorizer and one with rules
of many topics and users, of which one allows the load; so what else the machine does meets both.
"""

from __future__ import annotations

import statistics

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from benchmarks import clients
from benchmarks.cases import Case
from benchmarks.clients import Figures
from benchmarks.testbed import Testbed, create_topic, measured
from compat_tests.servers import KledgerServer, ServerProcess
from compat_tests.settings import STANDARD_AUTHORIZER

_RULES = {"authorizer.class.name": STANDARD_AUTHORIZER}
_ADMIN = {"super.users": "User:ANONYMOUS"}
_ADMIN_TIMEOUT_S = 120
_ROUNDS = 8


def authorizer(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Send small requests alternately to a server without rules and to one with them."""
    with testbed.own_server(subject) as plain, testbed.own_server(subject) as guarded:
        assert isinstance(guarded, KledgerServer), "Apache Kafka is asked by compat_tests"
        plain.start()
        guarded.settings = _RULES | _ADMIN
        guarded.start()
        topics = [create_topic(subject, each.bootstrap, 1) for each in (plain, guarded)]
        _create_rules(guarded.bootstrap, topics[1], case.records)
        guarded.stop()
        guarded.settings = _RULES
        guarded.start()
        costs: tuple[list[float], list[float]] = [], []
        for _ in range(_ROUNDS):
            for server, topic, found in zip((plain, guarded), topics, costs, strict=True):
                found.append(_cpu_us_per_request(case, server, topic))
    without, with_rules = (statistics.median(each) for each in costs)
    return {
        "cpu_us_per_request": without,
        "cpu_us_with_rules": with_rules,
        "rules_cpu_percent": (with_rules / without - 1) * 100,
    }


def _cpu_us_per_request(case: Case, server: ServerProcess, topic: str) -> float:
    with measured(server) as usage:
        found = clients.raw(case, server.bootstrap, topic, "--seconds", str(case.seconds))
    return usage.cpu_s * 1e6 / found["total"]


def _create_rules(bootstrap: str, topic: str, count: int) -> None:
    """Create so many rules of other topics and users, half of them of prefixes, and one for us."""
    patterns = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    rules = [
        _rule(f"other-{number}", patterns[number % 2], f"User:other-{number % 50}")
        for number in range(count - 1)
    ]
    rules.append(_rule(topic, ResourcePatternType.LITERAL, "User:ANONYMOUS"))
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    for each in admin.create_acls(rules, request_timeout=_ADMIN_TIMEOUT_S).values():
        each.result(_ADMIN_TIMEOUT_S)


def _rule(topic: str, pattern: ResourcePatternType, principal: str) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        topic,
        pattern,
        principal,
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
