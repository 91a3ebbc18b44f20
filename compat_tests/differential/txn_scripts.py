"""Transactions, old (EndTxn 0-4) and new (5, KIP-890): outcomes, fencing, timeouts, admin."""

from __future__ import annotations

from typing import Any

from compat_tests.differential import words
from compat_tests.differential.group_scripts import Member
from compat_tests.differential.scripts import script
from compat_tests.differential.side import Side
from compat_tests.differential.txn_producer import (
    LONG_MS,
    NEW_PRODUCE,
    OLD_PRODUCE,
    RISING_SINCE,
    Producer,
    begun,
    produce,
)
from kledger.gateway.wire.messages import k24_add_partitions_to_txn as k24
from kledger.gateway.wire.messages import k27_write_txn_markers as k27
from kledger.gateway.wire.messages.k22_init_producer_id import InitProducerIdRequest
from kledger.gateway.wire.messages.k65_describe_transactions import DescribeTransactionsRequest
from kledger.gateway.wire.messages.k66_list_transactions import ListTransactionsRequest
from kledger.gateway.wire.primitives import ZERO_UUID

INIT, ADD, ADD_OFFSETS, END, MARKERS, COMMIT_OFFSETS = 22, 24, 25, 26, 27, 28
Changes = dict[str, dict[str, Any]]
"""What differs from a good request, by what is wrong with it."""


@script
def producers_are_initialised(side: Side) -> None:
    for version in side.versions(INIT):
        producer = Producer(side, f"initialised-{version}", "none")
        producer.init("first", version)
        producer.init("second", version)
        producer.init("too long", version, timeout_ms=900_001)
        producer.init("longest", version, timeout_ms=900_000)
        producer.init("no time", version, timeout_ms=0)
        producer.init("negative", version, timeout_ms=-1)
        Producer(side, "", "none").init("no name", version)
        if version >= 3:
            producer.init("comes back", version, comes_back=True)
            producer.epoch -= 1
            producer.init("comes back, the answer was lost", version, comes_back=True)
            producer.epoch -= 2
            producer.init("comes back from long ago", version, comes_back=True)
            for who, epoch in ((-1, 3), (3, -1), (12_345, 0)):
                request = InitProducerIdRequest(
                    transactional_id=producer.name,
                    transaction_timeout_ms=LONG_MS,
                    producer_id=who,
                    producer_epoch=epoch,
                )
                side.ask(f"comes back as {who}, {epoch}", request, version)
            stranger = Producer(side, f"stranger-{version}", "none")
            stranger.producer_id, stranger.epoch = 54_321, 3
            stranger.init("a stranger comes back", version, comes_back=True)


@script
def transactions_end(side: Side) -> None:
    for version in side.versions(END):
        for commit in (True, False):
            name = f"end-{version}-{commit}".lower()
            producer = begun(side, name, version)
            produce(producer, "second", version)
            producer.look("open")
            producer.state("open")
            producer.end("end", version, commit=commit)
            producer.look("ended", has_ended=True)
            producer.settled("ended")
            if version < RISING_SINCE:
                producer.add("the next one", 0)
            produce(producer, "third", version)
            producer.end("end of the next", version, commit=not commit)
            producer.look("both", has_ended=True)
            producer.settled("both")


@script
def transactions_end_twice(side: Side) -> None:
    for version in side.versions(END):
        for commit in (True, False):
            name = f"twice-{version}-{commit}".lower()
            producer = begun(side, name, version)
            before = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
            producer.end("end", version, commit=commit)
            producer.settled("ended")
            producer.end("the same, lost answer", version, commit=commit, **before)
            producer.end("the other, lost answer", version, commit=not commit, **before)
            producer.end("the same", version, commit=commit)
            producer.end("the other", version, commit=not commit)
            producer.settled("ended")


@script
def ends_that_are_refused(side: Side) -> None:
    for version in side.versions(END):
        producer = begun(side, f"refused-{version}", version)
        cases: Changes = {
            "old epoch": {"producer_epoch": producer.epoch - 1},
            "epoch to come": {"producer_epoch": producer.epoch + 1},
            "other producer": {"producer_id": 77_777},
            "unknown name": {"transactional_id": "nobody"},
            "no name": {"transactional_id": ""},
        }
        for label, changes in cases.items():
            producer.end(label, version, **changes)
        fresh = Producer(side, f"fresh-{version}", "none")
        for commit in (True, False):
            fresh.init("init")
            fresh.end(f"nothing to end, commit {commit}", version, commit=commit)
        producer.end("end", version)


@script
def partitions_are_added_to_transactions(side: Side) -> None:
    for version in side.versions(ADD):
        producer = Producer(side, f"added-{version}", side.has(f"topic-added-{version}", 3))
        producer.init("init")
        producer.add("unknown partition", 0, 7, version=version)
        producer.add("unknown topic", 0, topic="no-added", version=version)
        producer.add("two", 0, 1, version=version)
        producer.add("one of them again", 1, version=version)
        producer.add("none", version=version)
        producer.state("three")
        producer.epoch += 1
        producer.add("epoch to come", 2, version=version)
        producer.epoch -= 2
        producer.add("old epoch", 2, version=version)
        producer.epoch += 1
        producer.producer_id += 1
        producer.add("other producer", 2, version=version)
        Producer(side, "nobody-adds", producer.topic).add("unknown name", 0, version=version)
        Producer(side, "", producer.topic).add("no name", 0, version=version)


@script
def partitions_are_verified(side: Side) -> None:
    producer = begun(side, "verified")
    for version in side.versions(ADD, since=4):
        for label, names, who in (
            ("added", [0], 0), ("not added", [1], 0), ("both", [0, 1], 0), ("unknown", [7], 0),
            ("other producer", [0], 1),
        ):  # fmt: skip
            topic = k24.AddPartitionsToTxnTopic(name=producer.topic, partitions=names)
            one = k24.AddPartitionsToTxnTransaction(
                transactional_id=producer.name,
                producer_id=producer.producer_id + who,
                producer_epoch=producer.epoch,
                verify_only=True,
                topics=[topic],
            )
            request = k24.AddPartitionsToTxnRequest(transactions=[one])
            side.ask(label, request, version)


@script
def nothing_is_added_to_a_transaction(side: Side) -> None:
    newest = max(side.versions(ADD))
    side.ask_shortly("nothing", k24.AddPartitionsToTxnRequest(), newest)


@script
def transactional_records_are_admitted(side: Side) -> None:
    for version in side.versions(0, since=3):
        name = f"admitted-{version}"
        producer = Producer(side, name, side.has(f"topic-{name}", 3))
        producer.init("init")
        producer.produce("nothing was begun", version)
        producer.add("add", 0)
        producer.produce("added", version)
        producer.produce("not added", version, partition=1)
        producer.produce("without a name", version, names_itself=False)
        producer.produce("not transactional", version, is_transactional=False)
        producer.produce("not transactional, no name", version, is_transactional=False,
                         names_itself=False)  # fmt: skip
        producer.produce("a gap", version, sequence=9)
        producer.produce("a duplicate", version, sequence=0)
        producer.epoch += 1
        producer.produce("epoch to come", version, sequence=0)
        producer.epoch -= 2
        producer.produce("old epoch", version, sequence=0)
        producer.epoch += 1
        other = Producer(side, "nobody-writes", producer.topic)
        other.producer_id, other.epoch = 66_666, 0
        other.produce("unknown name", version, partition=2)
        producer.end("end")
        producer.settled("ended")
        producer.produce("behind the end", version)
        producer.look("behind the end")


@script
def old_producers_are_fenced(side: Side) -> None:
    for version in side.versions(END):
        old = begun(side, f"fenced-{version}", version)
        new = Producer(side, old.name, old.topic)
        new.init("a new one takes over")
        new.look("what was open is aborted", has_ended=True)
        new.settled("aborted")
        produce(old, "old writes", version)
        old.add("old adds", 1)
        old.add("old adds, v1", 1, version=1)
        old.add_group("old adds a group", "fenced")
        old.add_group("old adds a group, v1", "fenced", version=1)
        old.commit_offset("old commits", "fenced", 1)
        old.end("old commits all", version)
        old.end("old aborts all", version, commit=False)
        old.init("old comes back", comes_back=True)
        old.init("old comes back, v3", 3, comes_back=True)
        if version < RISING_SINCE:
            new.add("new adds", 0)
        produce(new, "new writes", version)
        new.end("new ends", version)
        new.look("all", has_ended=True)


@script
def transactions_time_out(side: Side) -> None:
    producers = []
    for version in (4, 5):
        name = f"slow-{version}"
        producer = Producer(side, name, side.has(f"topic-{name}", 2))
        producer.init("init", timeout_ms=300)
        if version < RISING_SINCE:
            producer.add("add", 0)
        produce(producer, "first", version)
        producers.append(producer)
    for version, producer in zip((4, 5), producers, strict=True):
        producer.look("aborted", has_ended=True)
        producer.settled("aborted")
        produce(producer, "late", version)
        producer.add("late add", 1)
        producer.end("late end", version)
        producer.end("late abort", version, commit=False)
        producer.init("comes back", comes_back=True)
        producer.init("begins anew")


@script
def offsets_belong_to_transactions(side: Side) -> None:
    for version in side.versions(COMMIT_OFFSETS):
        for commit in (True, False):
            name = f"with-offsets-{version}-{commit}".lower()
            producer = Producer(side, name, side.has(f"topic-{name}"))
            side.settle("before", words.commit(name, producer.topic, {0: 1}), 7)
            producer.init("init")
            if version < 5:
                producer.commit_offset("group not added", name, 2, version)
                producer.add_group("add group", name, min(version, 4))
            producer.commit_offset("commit", name, 3, version)
            producer.commit_offset("further", name, 4, version)
            producer.state("open")
            producer.committed("meanwhile", name)
            producer.committed("meanwhile, stable", name, require_stable=True)
            producer.end("end", 5 if version >= 5 else 4, commit=commit)
            producer.settled("ended")
            producer.committed("ended", name, require_stable=True)


@script
def offsets_of_transactions_are_checked(side: Side) -> None:
    for version in side.versions(COMMIT_OFFSETS):
        name = f"checked-{version}"
        producer = Producer(side, name, side.has(f"topic-{name}"))
        member = Member(side, name)
        member.join("join")
        member.sync("sync", member)
        producer.init("init")
        if version < 5:
            producer.add_group("add group", name)
        at = {"member_id": member.member_id, "generation_id": member.generation}
        cases: Changes = {
            "of the member": at,
            "without a member": {},
            "old generation": at | {"generation_id": 0},
            "unknown member": at | {"member_id": "nobody"},
            "member without generation": {"member_id": member.member_id},
            "unknown instance": at | {"group_instance_id": "nobody"},
            "old epoch": at | {"producer_epoch": producer.epoch - 1},
            "other producer": at | {"producer_id": 55_555},
            "unknown name": at | {"transactional_id": "nobody"},
            "no name": at | {"transactional_id": ""},
            "no group": at | {"group_id": ""},
            "no topics": at | {"topics": []},
        }
        for label, sender in cases.items():
            producer.commit_offset(label, name, 5, version, **sender)
        producer.commit_offset("another group", f"{name}-other", 5, version)
        producer.end("end", 5 if version >= 5 else 4)
        producer.settled("ended")
        producer.committed("ended", name)
        producer.committed("ended, other", f"{name}-other")


@script
def groups_are_added(side: Side) -> None:
    for version in side.versions(ADD_OFFSETS):
        producer = Producer(side, f"group-added-{version}", "none")
        producer.init("init")
        producer.add_group("no group", "", version)
        producer.add_group("add", "some-group", version)
        producer.add_group("again", "some-group", version)
        producer.epoch -= 1
        producer.add_group("old epoch", "some-group", version)
        producer.epoch += 1
        producer.producer_id += 1
        producer.add_group("other producer", "some-group", version)
        Producer(side, "nobody-adds-groups", "none").add_group("unknown name", "g", version)
        Producer(side, "", "none").add_group("no name", "g", version)


@script
def transactions_are_interleaved(side: Side) -> None:
    topic = side.has("interleaved")
    producers = [Producer(side, f"interleaved-{one}", topic) for one in range(3)]
    for each in producers:
        each.init("init")
        each.add("add", 0)
    first, second, third = producers
    first.produce("a")
    second.produce("b")
    side.write(topic, words.batch(b"plain"))
    third.produce("c")
    second.end("second aborts", commit=False)
    second.settled("second has ended")
    first.look("first is open")
    third.end("third commits")
    third.settled("third has ended")
    first.produce("d")
    first.look("first is still open")
    first.end("first commits")
    first.look("all have ended", has_ended=True)
    for version in side.versions(1):
        by_id = side.topic_id(topic) if version >= words.RECORDS_BY_ID else ZERO_UUID
        for isolation in (0, 1):
            for offset in range(10):
                request = words.fetch(topic, {0: offset}, topic_id=by_id, isolation_level=isolation)
                side.ask(f"offset {offset}, isolation {isolation}", request, version)


@script
def markers_are_written_by_hand(side: Side) -> None:
    for version in side.versions(MARKERS):
        producer = begun(side, f"by-hand-{version}")
        for label, epoch, partitions, topic in (
            ("old epoch", -1, [0], producer.topic),
            ("unknown partition", 0, [7], producer.topic),
            ("unknown topic", 0, [0], "no-by-hand"),
            ("good", 0, [0], producer.topic),
            ("again", 0, [0], producer.topic),
        ):
            marker = k27.WritableTxnMarker(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch + epoch,
                topics=[k27.WritableTxnMarkerTopic(name=topic, partition_indexes=partitions)],
            )
            side.ask(label, k27.WriteTxnMarkersRequest(markers=[marker]), version)
        side.ask("nothing", k27.WriteTxnMarkersRequest(), version)
        producer.look("by hand")


@script
def transactions_are_described_and_listed(side: Side) -> None:
    producer = begun(side, "described-1")
    producer.add_group("add group", "described")
    idle = Producer(side, "described-2", "none")
    idle.init("init")
    for names in (["described-1"], ["described-2", "nobody"], [""], []):
        side.ask(f"{names}", DescribeTransactionsRequest(transactional_ids=names), 0)
    for version in side.versions(66):
        cases: Changes = {
            "open": {"state_filters": ["Ongoing"]},
            "by producer": {"producer_id_filters": [idle.producer_id]},
            "unknown state": {"state_filters": ["Nonsense"]},
            "unknown producer": {"producer_id_filters": [99_999]},
        }
        for label, changes in cases.items():
            request = ListTransactionsRequest(
                **changes, transactional_id_pattern="described.*" if version >= 2 else None
            )
            if version >= 2 or label != "open":
                side.ask(label, request, version)
        if version >= 1:
            request = ListTransactionsRequest(duration_filter=600_000)
            side.ask("open for long", request, version)
        if version >= 2:
            for pattern in ("described-.", "(", "", "described"):
                request = ListTransactionsRequest(transactional_id_pattern=pattern)
                if pattern:
                    side.ask(f"pattern {pattern}", request, version)
    producer.end("end")


@script
def transactions_of_no_records(side: Side) -> None:
    for version in side.versions(END):
        for commit in (True, False):
            name = f"no-records-{version}-{commit}".lower()
            producer = Producer(side, name, side.has(f"topic-{name}"))
            producer.init("init")
            producer.add("add", 0)
            producer.end("end", version, commit=commit)
            producer.settled("ended")
            producer.look("no records", has_ended=True)


@script
def records_of_a_transaction_that_is_over(side: Side) -> None:
    """The hanging transaction of KIP-890: what comes late must not open anything."""
    for version in side.versions(END):
        producer = begun(side, f"late-{version}", version)
        before = producer.epoch
        producer.end("end", version)
        producer.settled("ended")
        after, producer.epoch = producer.epoch, before
        for produce_version in (OLD_PRODUCE, NEW_PRODUCE):
            producer.produce(f"late, {produce_version}", produce_version, sequence=1)
        producer.epoch = after
        producer.look("late")
