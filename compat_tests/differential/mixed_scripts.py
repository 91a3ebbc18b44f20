"""What is rarely asked together: transactions, and groups, offsets and records that are deleted."""

from __future__ import annotations

from compat_tests.differential import words
from compat_tests.differential.consumer_scripts import HeartbeatMember, look, ready
from compat_tests.differential.fetch_scripts import cut_before
from compat_tests.differential.group_scripts import LEAVE, Member, describe
from compat_tests.differential.scripts import script
from compat_tests.differential.side import Side
from compat_tests.differential.txn_producer import Producer, begun, produce
from kledger.gateway.wire.messages import k13_leave_group as k13
from kledger.gateway.wire.messages import k14_sync_group as k14
from kledger.gateway.wire.messages import k47_offset_delete as k47
from kledger.gateway.wire.messages.k11_join_group import JoinGroupRequestProtocol
from kledger.gateway.wire.messages.k42_delete_groups import DeleteGroupsRequest

SUBSCRIPTION_HEAD, ASSIGNMENT_HEAD = b"\0\0\0\0\0\1", b"\0\0\0\0\0\1"
NOBODY_S_DATA = b"\xff\xff\xff\xff"


def pending(side: Side, name: str, version: int) -> Producer:
    """A producer that has sent an offset of a group, and not ended its transaction."""
    producer = Producer(side, name, side.has(f"topic-{name}"))
    producer.init("init")
    send_offset(producer, 7, version)
    return producer


def send_offset(producer: Producer, offset: int, version: int) -> None:
    """Send an offset of the group that is called as the producer is."""
    if version < 5:
        producer.add_group("add group", producer.name)
    producer.commit_offset(f"send {offset}", producer.name, offset, version)


def seen(producer: Producer, label: str) -> None:
    """Look at the group and its offset."""
    describe(producer.side, label, producer.name)
    producer.committed(label, producer.name)
    producer.committed(f"{label}, stable", producer.name, require_stable=True)


@script
def groups_are_deleted_while_offsets_are_pending(side: Side) -> None:
    for version in (4, 5):
        name = f"deleted-pending-{version}"
        producer = pending(side, name, version)
        seen(producer, "nothing but pending")
        side.ask("delete", DeleteGroupsRequest(groups_names=[name]), 2)
        seen(producer, "deleted")
        producer.end("end", version)
        producer.settled("ended")
        seen(producer, "ended")
        side.ask("commit", words.commit(name, producer.topic, {0: 3}), 8)
        send_offset(producer, 9, version)
        partition = k47.OffsetDeleteRequestPartition(partition_index=0)
        topic = k47.OffsetDeleteRequestTopic(name=producer.topic, partitions=[partition])
        side.ask("delete offset", k47.OffsetDeleteRequest(group_id=name, topics=[topic]), 0)
        producer.end("end again", version)
        producer.settled("ended again")
        producer.committed("offset deleted", name, require_stable=True)


@script
def offsets_are_committed_while_others_are_pending(side: Side) -> None:
    for version in (4, 5):
        for commit in (True, False):
            name = f"overtaken-{version}-{commit}".lower()
            producer = pending(side, name, version)
            side.ask("commit", words.commit(name, producer.topic, {0: 3}), 8)
            seen(producer, "both")
            producer.end("end", version, commit=commit)
            producer.settled("ended")
            seen(producer, "ended")
    topic = side.has("overtaken")
    first, second = (Producer(side, f"overtaken-{one}", topic) for one in "ab")
    for offset, producer in enumerate((first, second)):
        producer.init("init")
        producer.add_group("add group", "overtaken")
        producer.commit_offset("send", "overtaken", offset, 4)
    for producer in (second, first):
        producer.end("end")
        producer.settled("ended")
        producer.committed("ended", "overtaken", require_stable=True)


@script
def records_of_an_open_transaction_are_deleted(side: Side) -> None:
    for version in (4, 5):
        producer = begun(side, f"cut-{version}", version, 1)
        topic = producer.topic
        side.write(topic, words.batch(b"plain"))
        for before in (1, -1):
            side.ask(f"cut before {before}", cut_before(topic, before), 2)
            for isolation in (0, 1):
                end = words.list_offsets(topic, {0: -1}, isolation_level=isolation)
                side.ask(f"end, isolation {isolation}", end, 7)
                fetch = words.fetch(topic, {0: 2}, isolation_level=isolation)
                side.ask(f"at the end, isolation {isolation}", fetch, 12)
        produce(producer, "behind", version)
        producer.end("end", version, commit=False)
        producer.settled("ended")
        producer.look("ended", has_ended=True)


@script
def the_last_member_of_the_consumer_protocol_leaves(side: Side) -> None:
    group = "way-back"
    topic = ready(side, group, 2)
    name = len(topic).to_bytes(2, "big") + topic.encode()
    metadata = SUBSCRIPTION_HEAD + name + NOBODY_S_DATA
    all_of_it = ASSIGNMENT_HEAD + name + b"\0\0\0\2" + b"\0\0\0\0" + b"\0\0\0\1" + NOBODY_S_DATA
    classic = Member(side, group, metadata=metadata)
    classic.join("joins")
    assigned = k14.SyncGroupRequestAssignment(member_id=classic.member_id, assignment=all_of_it)
    classic.sync("gets all", assignments=[assigned])
    other = HeartbeatMember(side, group, f"{group}-b", 1)
    other.join("joins", topic)
    classic.heartbeat("gets the error")
    classic.commit("commits meanwhile", topic, 1)
    protocols = [JoinGroupRequestProtocol(name="range", metadata=metadata)]
    again = classic.joining(protocols=protocols)
    classic.take(side.ask("joins again", again, 9))
    classic.sync("gets its part")
    other.leave("leaves")
    classic.heartbeat("gets that error, too")
    classic.commit("commits before it joins again", topic, 2)
    classic.take(side.ask("joins once more", classic.joining(protocols=protocols), 9))
    classic.commit("commits before it is assigned", topic, 3)
    classic.leave("leaves")
    side.ask("what holds", words.committed(group, None), 7)


@script
def members_of_the_consumer_protocol_are_removed(side: Side) -> None:
    for version in side.versions(LEAVE):
        group = f"removed-{version}"
        topic = ready(side, group, 2)
        members = [
            HeartbeatMember(side, group, f"{group}-{one}", 1, instance=instance)
            for one, instance in (("a", None), ("b", "i"), ("c", "j"))
        ]
        for each in members:
            each.join("joins", topic)
        for each in members:
            identity = k13.MemberIdentity(
                member_id=each.member_id,
                group_instance_id=each.instance if each is members[-1] else None,
            )
            request = k13.LeaveGroupRequest(
                group_id=group, member_id=each.member_id, members=[identity]
            )
            side.ask(f"remove {each.member_id}", request, version)
            each.heartbeat("was removed")
        look(side, "removed", group)
