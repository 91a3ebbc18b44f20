"""Consumer groups of KIP-848, where the server decides who reads what.

librdkafka and the Java client use it with a setting; kafka-python does not have it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from compat_tests.conftest import MakeTopic, Tool, create_topic
from compat_tests.deadlines import WAIT_S, rounds
from compat_tests.records import samples
from compat_tests.test_confluent_kafka import checked, consuming, receive, send_all
from compat_tests.test_java_tools import LINES, console_consumer, console_producer, groups_tool

LIBRDKAFKA = pytest.mark.peer("confluent-kafka")
JAVA = pytest.mark.peer("kafka-java-tools")
PROTOCOL = {"group_protocol": "consumer"}


@contextmanager
def members(
    bootstrap: str, group: str, topic: str, count: int, **options: str
) -> Iterator[list[Consumer]]:
    """So many consumers of one topic."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(consuming(bootstrap, topic, group=group, **PROTOCOL, **options))
            for _ in range(count)
        ]


def shares(consumers: list[Consumer], partitions: int) -> list[list[int]]:
    """Poll until every partition is read by exactly one consumer, and each has its fair share."""
    for _ in rounds("a balanced group"):
        for consumer in consumers:
            checked(consumer.consume(10, timeout=0.1))
        owned = [sorted(one.partition for one in each.assignment()) for each in consumers]
        counts = [len(each) for each in owned]
        is_whole = sorted(chain(*owned)) == list(range(partitions))
        if is_whole and max(counts) - min(counts) <= 1:
            break
    return owned


@LIBRDKAFKA
@pytest.mark.feature("consumer protocol: join, read, commit, leave, go on")
def test_member_reads_commits_and_continues(
    bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    name = make_topic()
    send_all(bootstrap, name, samples(50))
    with consuming(bootstrap, name, group=group, **PROTOCOL) as consumer:
        assert len(receive(consumer, 20)) == 20
        consumer.commit(offsets=[TopicPartition(name, 0, 20)], asynchronous=False)
    with consuming(bootstrap, name, group=group, **PROTOCOL) as consumer:
        assert [one.offset() for one in receive(consumer, 30)] == list(range(20, 50))


@LIBRDKAFKA
@pytest.mark.workers("the coordinator of its group may lead none of its partitions")
@pytest.mark.feature("consumer protocol: members share partitions, and take over from each other")
@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_share_partitions(
    bootstrap: str, make_topic: MakeTopic, group: str, assignor: str
) -> None:
    name = make_topic(partitions=6)
    options = {"group_remote_assignor": assignor}
    with members(bootstrap, group, name, 1, **options) as first:
        assert shares(first, 6) == [[0, 1, 2, 3, 4, 5]]
        with members(bootstrap, group, name, 2, **options) as others:
            owned = shares([*first, *others], 6)
            assert [len(each) for each in owned] == [2, 2, 2]
        assert shares(first, 6) == [[0, 1, 2, 3, 4, 5]]


@LIBRDKAFKA
@pytest.mark.feature("consumer protocol: subscription by expression sees new topics")
def test_expression_sees_new_topics(bootstrap: str, topic: str, group: str) -> None:
    create_topic(bootstrap, f"{topic}-a", 1, {})
    with consuming(bootstrap, f"^{topic}-.*", group=group, **PROTOCOL) as consumer:
        for _ in rounds("the first topic"):
            checked(consumer.consume(10, timeout=0.1))
            if {one.topic for one in consumer.assignment()} == {f"{topic}-a"}:
                break
        create_topic(bootstrap, f"{topic}-b", 2, {})
        for _ in rounds("the second topic"):
            checked(consumer.consume(10, timeout=0.1))
            if {one.topic for one in consumer.assignment()} == {f"{topic}-a", f"{topic}-b"}:
                break
        assert len(consumer.assignment()) == 3


@LIBRDKAFKA
@pytest.mark.workers("the coordinator of its group may lead none of its partitions")
@pytest.mark.feature("consumer protocol: a static member comes back to its partitions")
def test_static_member_comes_back(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    name = make_topic(partitions=4)
    static = {"group_instance_id": "i"}
    with members(bootstrap, group, name, 1) as others:
        with members(bootstrap, group, name, 1, **static) as first:
            before = shares([*others, *first], 4)[1]
        with members(bootstrap, group, name, 1, **static) as again:
            assert shares([*others, *again], 4)[1] == before


@JAVA
@pytest.mark.feature("console consumer of the consumer protocol")
def test_java_consumer_reads(java: Tool, bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    name = make_topic()
    console_producer(java, bootstrap, name, LINES)
    options = ("--group", group, "--command-property", "group.protocol=consumer")
    assert console_consumer(java, bootstrap, name, len(LINES), *options) == LINES
    described = groups_tool(java, bootstrap, "--describe", "--group", group, "--state")
    assert "Empty" in described


@JAVA
@pytest.mark.feature("consumer-groups: describe, list and delete groups of the consumer protocol")
def test_tool_describes_a_group(
    java: Tool, bootstrap: str, make_topic: MakeTopic, group: str
) -> None:
    name = make_topic(partitions=2)
    send_all(bootstrap, name, samples(10))
    with consuming(bootstrap, name, group=group, **PROTOCOL) as consumer:
        receive(consumer, 10)
        consumer.commit(asynchronous=False)
        state = groups_tool(java, bootstrap, "--describe", "--group", group, "--state")
        assert "Stable" in state
        everything = ("--describe", "--group", group, "--members", "--verbose")
        shown = groups_tool(java, bootstrap, *everything)
        assert f"{name}:0,1" in shown
        listed = groups_tool(java, bootstrap, "--list", "--type", "consumer")
        assert group in listed.split()
    groups_tool(java, bootstrap, "--delete", "--group", group)
    assert group not in groups_tool(java, bootstrap, "--list").split()


@LIBRDKAFKA
@pytest.mark.feature("consumer protocol: list groups with their types")
def test_admin_lists_the_group(bootstrap: str, make_topic: MakeTopic, group: str) -> None:
    name = make_topic()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    with members(bootstrap, group, name, 1) as consumers:
        shares(consumers, 1)
        listed = admin.list_consumer_groups().result(WAIT_S)
        found = {one.group_id: one.type.name for one in listed.valid}
        assert found[group] == "CONSUMER"


@LIBRDKAFKA
@pytest.mark.feature("a group changes its protocol and back, members reading all the while")
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_group_changes_its_protocol_while_members_read(
    bootstrap: str, make_topic: MakeTopic, group: str, strategy: str
) -> None:
    name = make_topic(partitions=4)
    classic = {"partition_assignment_strategy": strategy, "heartbeat_interval_ms": "500"}
    with consuming(bootstrap, name, group=group, **classic) as old:
        assert shares([old], 4) == [[0, 1, 2, 3]]
        with members(bootstrap, group, name, 1) as new:
            assert [len(each) for each in shares([old, *new], 4)] == [2, 2]
            send_all(bootstrap, name, samples(5), partition=0)
            send_all(bootstrap, name, samples(5), partition=3)
            read = 0
            for _ in rounds("records of both halves"):
                read += sum(len(checked(each.consume(10, timeout=0.1))) for each in (old, *new))
                if read == 10:
                    break
        assert shares([old], 4) == [[0, 1, 2, 3]]
