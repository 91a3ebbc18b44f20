"""Classic groups and offsets, at every version: coordinators, members, commits, admin."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from compat_tests.differential import words
from compat_tests.differential.scripts import script
from compat_tests.differential.side import Side
from kledger.gateway.wire.messages import k11_join_group as k11
from kledger.gateway.wire.messages import k13_leave_group as k13
from kledger.gateway.wire.messages import k14_sync_group as k14
from kledger.gateway.wire.messages import k47_offset_delete as k47
from kledger.gateway.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from kledger.gateway.wire.messages.k12_heartbeat import HeartbeatRequest
from kledger.gateway.wire.messages.k15_describe_groups import DescribeGroupsRequest
from kledger.gateway.wire.messages.k16_list_groups import ListGroupsRequest
from kledger.gateway.wire.messages.k42_delete_groups import DeleteGroupsRequest
from kledger.gateway.wire.primitives import ZERO_UUID

COMMIT, FETCH_OFFSETS, FIND, JOIN, HEARTBEAT, LEAVE, SYNC = 8, 9, 10, 11, 12, 13, 14
DESCRIBE, LIST, DELETE_GROUPS, DELETE_OFFSETS = 15, 16, 42, 47
SESSION_MS: Final = 30_000
MEMBER_ID_REQUIRED: Final = 79
Changes = dict[str, dict[str, Any]]
"""What differs from a good request, by what is wrong with it."""
NEW: Final = {JOIN: 9, HEARTBEAT: 4, LEAVE: 5, SYNC: 5}


class Member:
    """A member of a classic group: its own id and generation, by its last response."""

    def __init__(
        self, side: Side, group: str, *, instance: str | None = None, metadata: bytes = b"r"
    ) -> None:
        """Speak over a connection of its own."""
        self.side = side.another()
        self.group = group
        self.instance = instance
        self.metadata = metadata
        self.member_id = ""
        self.generation = -1

    def joining(self, **changes: Any) -> k11.JoinGroupRequest:
        """Build the request."""
        settings: dict[str, Any] = {
            "group_id": self.group,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": SESSION_MS,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocols": [k11.JoinGroupRequestProtocol(name="range", metadata=self.metadata)],
        }
        return k11.JoinGroupRequest(**settings | changes)

    def take(self, answer: Any) -> Any:
        """Keep what a join has brought."""
        self.member_id = answer.member_id or self.member_id
        self.generation = max(answer.generation_id, self.generation)
        return answer

    def join(self, label: str, version: int = NEW[JOIN], **changes: Any) -> Any:
        """Join, twice if an id is given out first."""
        answer = self.take(self.side.settle(label, self.joining(**changes), version))
        if answer.error_code == MEMBER_ID_REQUIRED:
            answer = self.take(self.side.ask(f"{label}, with id", self.joining(**changes), version))
        return answer

    def syncing(self, *members: Member, **changes: Any) -> k14.SyncGroupRequest:
        """Build the request; the leader gives everybody its number."""
        settings: dict[str, Any] = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [
                k14.SyncGroupRequestAssignment(member_id=one.member_id, assignment=b"%d" % index)
                for index, one in enumerate(members)
            ],
        }
        return k14.SyncGroupRequest(**settings | changes)

    def sync(self, label: str, *members: Member, version: int = NEW[SYNC], **changes: Any) -> Any:
        """Ask for the assignment."""
        return self.side.ask(label, self.syncing(*members, **changes), version)

    def heartbeat(self, label: str, version: int = NEW[HEARTBEAT], **changes: Any) -> Any:
        """Say that it lives."""
        settings: dict[str, Any] = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
        }
        return self.side.ask(label, HeartbeatRequest(**settings | changes), version)

    def leave(self, label: str, version: int = NEW[LEAVE], **changes: Any) -> Any:
        """Leave."""
        identity = k13.MemberIdentity(
            member_id=self.member_id, group_instance_id=self.instance, reason="done"
        )
        settings: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "members": [identity],
        }
        return self.side.ask(label, k13.LeaveGroupRequest(**settings | changes), version)

    def commit(self, label: str, topic: str, offset: int, version: int = 9, **changes: Any) -> Any:
        """Commit partition 0."""
        settings: dict[str, Any] = {
            "member_id": self.member_id,
            "generation_id_or_member_epoch": self.generation,
            "group_instance_id": self.instance,
        }
        request = words.commit(self.group, topic, {0: offset}, **settings | changes)
        return self.side.ask(label, request, version)


def describe(side: Side, label: str, *groups: str, version: int = 6) -> None:
    """Look at groups from outside."""
    side.ask(label, DescribeGroupsRequest(groups=list(groups)), version)


@script
def coordinators_are_found(side: Side) -> None:
    for version in side.versions(FIND):
        for kind in (0, 1):
            if kind and not version:
                continue
            for names in (["g"], ["g", "h"], [""], []):
                if version < 4 and len(names) != 1:
                    continue
                request = FindCoordinatorRequest(
                    key=names[0] if names else "", key_type=kind, coordinator_keys=names
                )
                side.settle(f"kind {kind}: {names}", request, version)
        for kind in (2, 3, -1):
            if version:
                request = FindCoordinatorRequest(key="g", key_type=kind, coordinator_keys=["g"])
                side.ask(f"kind {kind}", request, version)


@script
def one_member_joins_and_leaves(side: Side) -> None:
    for version in side.versions(JOIN):
        member = Member(side, f"single-{version}")
        member.join("join", version)
        member.heartbeat("before the sync")
        member.sync("sync", member, version=min(version, 5))
        member.heartbeat("heartbeat", min(version, 4))
        describe(side, "stable", member.group)
        member.take(side.ask("join again", member.joining(), version))
        member.sync("sync again", member, version=min(version, 5))
        member.heartbeat("old generation", min(version, 4), generation_id=member.generation - 1)
        member.heartbeat("unknown member", min(version, 4), member_id="nobody")
        member.sync("old generation", version=min(version, 5), generation_id=0)
        member.sync("unknown member", version=min(version, 5), member_id="nobody")
        member.leave("leave", min(version, 5))
        member.leave("leave again", min(version, 5))
        member.heartbeat("after it left", min(version, 4))
        describe(side, "empty", member.group)


@script
def joins_that_are_refused(side: Side) -> None:
    for version in side.versions(JOIN):
        member = Member(side, f"refused-{version}")
        range_ = [k11.JoinGroupRequestProtocol(name="range", metadata=b"r")]
        cases: Changes = {
            "no group": {"group_id": ""},
            "too short": {"session_timeout_ms": 999},
            "too long": {"session_timeout_ms": 1_800_001},
            "unknown member": {"member_id": "nobody"},
            "no protocols": {"protocols": []},
            "no protocol type": {"protocol_type": ""},
            "no protocol type, no protocols": {"protocol_type": "", "protocols": []},
        }
        for label, changes in cases.items():
            side.ask(label, member.joining(**changes), version)
        member.join("one is in", version)
        member.sync("sync", member)
        other = [k11.JoinGroupRequestProtocol(name="other", metadata=b"o")]
        others: Changes = {
            "other type": {"protocol_type": "connect", "protocols": range_},
            "other protocol": {"protocols": other},
        }
        for label, changes in others.items():
            side.ask(label, Member(side, member.group).joining(**changes), version)
        describe(side, "as before", member.group)


@script
def a_second_member_makes_a_new_generation(side: Side) -> None:
    for version in side.versions(JOIN):
        sync_version = min(version, 5)
        first, second = members = [
            Member(side, f"pair-{version}", metadata=one) for one in (b"1", b"2")
        ]
        first.join("first joins", version)
        first.sync("first syncs", first, version=sync_version)
        if version >= 4:
            second.take(side.ask("second gets an id", second.joining(), version))
        second.side.begin(second.joining(), version)
        request = HeartbeatRequest(
            group_id=first.group, generation_id=first.generation, member_id=first.member_id
        )
        first.side.ask_until("first gets the error", request, 4, lambda one: one.error_code)
        first.commit("commits meanwhile", "no-topic", 1)
        first.take(side.another().ask("first joins again", first.joining(), version))
        second.take(second.side.finish("second has joined", second.joining(), version))
        second.heartbeat("before the leader has said")
        second.commit("commits too early", "no-topic", 1)
        follower = second.syncing()
        second.side.begin(follower, sync_version)
        first.sync("leader says", *members, version=sync_version)
        second.side.finish("follower gets the error", follower, sync_version)
        describe(side, "both", first.group)
        second.take(side.another().ask("follower joins unchanged", second.joining(), version))
        second.leave("follower leaves", min(version, 5))
        first.heartbeat("first gets that error")
        describe(side, "one is left", first.group)


@script
def static_members_come_back(side: Side) -> None:
    for version in side.versions(JOIN, since=5):
        first = Member(side, f"static-{version}", instance="one")
        first.join("join", version)
        first.sync("sync", first)
        again = Member(side, first.group, instance="one")
        again.take(side.ask("a restart", again.joining(), version))
        first.heartbeat("the old one")
        first.sync("the old one syncs")
        first.commit("the old one commits", "no-topic", 1)
        again.sync("sync", again)
        again.heartbeat("the new one")
        again.heartbeat("by another instance", group_instance_id="two")
        describe(side, "static", first.group)
        changed = [k11.JoinGroupRequestProtocol(name="range", metadata=b"changed")]
        third = Member(side, first.group, instance="one")
        third.take(side.ask("restart, changed", third.joining(protocols=changed), version))
        third.sync("sync", third)
        side.ask("instance that is not there", _leaving(first.group, "", "two"), 5)
        side.ask("by instance", _leaving(first.group, "", "one"), 5)
        describe(side, "empty", first.group)


def _leaving(group: str, member_id: str, instance: str | None) -> k13.LeaveGroupRequest:
    identity = k13.MemberIdentity(member_id=member_id, group_instance_id=instance)
    return k13.LeaveGroupRequest(group_id=group, members=[identity])


@script
def members_of_no_group(side: Side) -> None:
    for version in side.versions(HEARTBEAT):
        for group in ("no-group", ""):
            Member(side, group).heartbeat(f"{group!r}", version)
    for version in side.versions(SYNC):
        for group in ("no-group", ""):
            Member(side, group).sync(f"{group!r}", version=version)
    for version in side.versions(LEAVE):
        for group in ("no-group", ""):
            Member(side, group).leave(f"{group!r}", version)


@script
def groups_are_described_and_listed(side: Side) -> None:
    member = Member(side, "looked-at")
    member.join("join")
    member.sync("sync", member)
    topic = side.has("looked-at")
    side.quietly(words.commit("looked-at-offsets", topic, {0: 1}), 7)
    groups = ["looked-at", "looked-at-offsets", "not-looked-at", ""]
    for version in side.versions(DESCRIBE):
        for operations in (False, True):
            request = DescribeGroupsRequest(groups=groups, include_authorized_operations=operations)
            side.ask(f"operations {operations}", request, version)
        side.ask("nothing", DescribeGroupsRequest(), version)
    for version in side.versions(LIST, since=4):
        for states in (["PreparingRebalance"], ["CompletingRebalance"], ["nonsense"], ["Dead"]):
            side.ask(f"{states}", ListGroupsRequest(states_filter=states), version)
        for types in (["share"], ["nonsense"]):
            side.ask(f"{types}", ListGroupsRequest(types_filter=types), 5)


@script
def offsets_are_committed_from_outside(side: Side) -> None:
    topic = side.has("offsets", 2)
    topic_id = side.topic_id(topic)
    for version in side.versions(COMMIT):
        _commit_from_outside(side, topic, topic_id, version)


def _commit_from_outside(side: Side, topic: str, topic_id: UUID, version: int) -> None:
    group = f"outside-{version}"
    by_id = topic_id if version >= words.OFFSETS_BY_ID else ZERO_UUID

    def ask(label: str, offsets: dict[int, int], **changes: Any) -> None:
        request = words.commit(group, topic, offsets, topic_id=by_id, **changes)
        side.ask(label, request, version)

    side.settle("first", words.commit(group, topic, {0: 5, 1: 6}, topic_id=by_id), version)
    ask("again, back", {0: 3})
    ask("negative", {0: -1})
    ask("unknown partition", {7: 1, 0: 4, -1: 1})
    ask("metadata null", {0: 4}, metadata=None)
    ask("metadata at the limit", {0: 4}, metadata="m" * 4_096)
    ask("metadata over the limit", {0: 9, 1: 9}, metadata="m" * 4_097)
    ask("member without generation", {0: 9}, member_id="nobody")
    ask("generation without member", {0: 9}, generation_id_or_member_epoch=1)
    ask("both unknown", {0: 9}, member_id="nobody", generation_id_or_member_epoch=1)
    ask("instance", {0: 9}, group_instance_id="one")
    ask("no partitions", {})
    unknown = words.commit(group, "no-offsets", {0: 1}, topic_id=words.UNKNOWN_ID)
    side.ask("unknown topic", unknown, version)
    side.ask("no group", words.commit("", topic, {0: 1}, topic_id=by_id), version)
    side.ask("what holds", words.committed(group, None), 7)


@script
def offsets_are_fetched(side: Side) -> None:
    topic = side.has("fetched", 3)
    topic_id = side.topic_id(topic)
    side.settle("commit", words.commit("fetched", topic, {0: 5, 2: 7}), 7)
    for version in side.versions(FETCH_OFFSETS):
        by_id = topic_id if version >= words.OFFSETS_BY_ID else ZERO_UUID
        for group in ("fetched", "not-fetched", ""):
            for label, name, partitions in (
                ("three", topic, (0, 1, 2)),
                ("unknown partition", topic, (7,)),
                ("no partitions", topic, ()),
                ("unknown topic", "no-fetched", (0,)),
                ("all", None, ()),
            ):
                if name is None and version < 2:
                    continue
                wanted = words.UNKNOWN_ID if by_id != ZERO_UUID and name != topic else by_id
                request = words.committed(group, name, partitions, topic_id=wanted)
                side.ask(f"{group!r} {label}", request, version)
        if version >= 8:
            request = words.committed("fetched", topic, (0,), topic_id=by_id)
            request.groups += words.committed("not-fetched", topic, (0,), topic_id=by_id).groups
            side.ask("two groups", request, version)
            request.groups = []
            side.ask("no groups", request, version)
        if version >= 9:
            request = words.committed(
                "fetched", topic, topic_id=by_id, member_id="nobody", member_epoch=5
            )
            side.ask("a member", request, version)


@script
def members_commit_offsets(side: Side) -> None:
    topic = side.has("of-members")
    topic_id = side.topic_id(topic)
    for version in side.versions(COMMIT):
        by_id = {"topic_id": topic_id} if version >= words.OFFSETS_BY_ID else {}
        member = Member(side, f"of-members-{version}")
        member.join("join")
        member.commit("before the sync", topic, 1, version, **by_id)
        member.sync("sync", member)
        member.commit("commit", topic, 2, version, **by_id)
        cases: Changes = {
            "old generation": {"generation_id_or_member_epoch": 0},
            "next generation": {"generation_id_or_member_epoch": 99},
            "unknown member": {"member_id": "nobody"},
            "from outside": {"member_id": "", "generation_id_or_member_epoch": -1},
            "unknown instance": {"group_instance_id": "nobody"},
        }
        for label, changes in cases.items():
            member.commit(label, topic, 3, version, **changes, **by_id)
        member.leave("leave")
        member.commit("after it left", topic, 4, version, **by_id)
        side.ask("what holds", words.committed(member.group, None), 7)


@script
def groups_and_offsets_are_deleted(side: Side) -> None:
    topic = side.has("deleted-offsets", 2)
    for version in side.versions(DELETE_GROUPS):
        group = f"deleted-{version}"
        side.settle("commit", words.commit(group, topic, {0: 5}), 7)
        member = Member(side, f"busy-{version}")
        member.join("join")
        for names in ([group, member.group, "no-group", ""], [group], []):
            side.ask(f"{len(names)} groups", DeleteGroupsRequest(groups_names=names), version)
        member.sync("sync", member)
        member.leave("leave")
        request = DeleteGroupsRequest(groups_names=[member.group, member.group])
        side.ask("twice", request, version)
    for version in side.versions(DELETE_OFFSETS):
        group = f"offsets-deleted-{version}"
        side.settle("commit", words.commit(group, topic, {0: 5, 1: 6}), 7)
        for label, name, named, partitions in (
            ("one", group, topic, [0]),
            ("again", group, topic, [0]),
            ("unknown partition", group, topic, [7, 1]),
            ("unknown topic", group, "no-topic", [0]),
            ("unknown group", "no-group", topic, [0]),
            ("no group", "", topic, [0]),
            ("no partitions", group, topic, []),
        ):
            asked = [k47.OffsetDeleteRequestPartition(partition_index=one) for one in partitions]
            deleting = k47.OffsetDeleteRequest(
                group_id=name, topics=[k47.OffsetDeleteRequestTopic(name=named, partitions=asked)]
            )
            side.ask(label, deleting, version)
        side.ask("what is left", words.committed(group, None), 7)
