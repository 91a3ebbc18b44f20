"""Groups of the consumer protocol, step by step: joining, sharing, instances, fencing, leaving."""

from __future__ import annotations

from typing import Any, Final

from compat_tests.deadlines import ask_until
from compat_tests.differential import words
from compat_tests.differential.group_scripts import Changes
from compat_tests.differential.scripts import script
from compat_tests.differential.side import Side
from kledger.gateway.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from kledger.gateway.wire.messages.k15_describe_groups import DescribeGroupsRequest
from kledger.gateway.wire.messages.k16_list_groups import ListGroupsRequest
from kledger.gateway.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from kledger.gateway.wire.messages.k69_consumer_group_describe import ConsumerGroupDescribeRequest

BEAT, DESCRIBE = 68, 69
JOIN, LEAVE, LEAVE_FOR_A_WHILE = 0, -1, -2
REBALANCE_MS: Final = 30_000


class HeartbeatMember:
    """A member with the state of a client: it owns the partitions assigned to it."""

    def __init__(
        self, side: Side, group: str, name: str, version: int, *, instance: str | None = None
    ) -> None:
        """Speak with an id of its own choice."""
        self.side = side
        self.group = group
        self.version = version
        self.member_id = name
        self.instance = instance
        self.epoch = JOIN
        self.owned: list[TopicPartitions] = []

    def heartbeat(self, label: str, **changes: Any) -> Any:
        """Send a heartbeat; null fields say that nothing has changed."""
        settings: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
        }
        request = ConsumerGroupHeartbeatRequest(**{**settings, **changes})
        answer = self.side.settle(f"{self.member_id} {label}", request, self.version)
        if not answer.error_code:
            self.member_id = answer.member_id or self.member_id
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = answer.assignment.topic_partitions
        return answer

    def join(self, label: str, *topics: str, **changes: Any) -> Any:
        """Send the first heartbeat, which says everything."""
        settings: dict[str, Any] = {
            "member_epoch": JOIN,
            "rebalance_timeout_ms": REBALANCE_MS,
            "subscribed_topic_names": list(topics),
            "topic_partitions": [],
        }
        return self.heartbeat(label, **{**settings, **changes})

    def acknowledge(self, label: str) -> Any:
        """Send a heartbeat that it owns its assigned partitions."""
        return self.heartbeat(label, topic_partitions=self.owned)

    def leave(self, label: str, epoch: int = LEAVE) -> Any:
        """Leave, or with another epoch only for a while."""
        return self.heartbeat(label, member_epoch=epoch)


def look(side: Side, label: str, group: str) -> None:
    """Look at a group in every way that there is."""
    for version in side.versions(DESCRIBE):
        side.ask(label, ConsumerGroupDescribeRequest(group_ids=[group]), version)
    side.ask(label, DescribeGroupsRequest(groups=[group]), 6)


def ready(side: Side, group: str, partitions: int = 4) -> str:
    """Have a coordinator and a topic that it knows; give its name."""
    side.settle("coordinator", FindCoordinatorRequest(coordinator_keys=[group]), 6)
    topic = side.has(f"topic-{group}", partitions)
    probe = ConsumerGroupHeartbeatRequest(
        group_id=f"{group}-probe",
        member_id="probe",
        rebalance_timeout_ms=REBALANCE_MS,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    ask_until(
        lambda: side.quietly(probe, 0),
        lambda answer: answer.assignment and answer.assignment.topic_partitions,
        f"{topic} is assigned",
    )
    return topic


@script
def members_share_and_leave(side: Side) -> None:
    for version in side.versions(BEAT):
        group = f"sharing-{version}"
        topic = ready(side, group)
        first, second = (HeartbeatMember(side, group, f"{group}-{one}", version) for one in "ab")
        first.join("joins", topic)
        first.acknowledge("owns all")
        look(side, "alone", group)
        second.join("joins", topic)
        first.heartbeat("has to revoke")
        look(side, "one waits for the other", group)
        second.heartbeat("has to wait")
        first.acknowledge("gave back")
        second.heartbeat("gets its part")
        second.acknowledge("owns its part")
        first.heartbeat("continues")
        look(side, "both", group)
        first.heartbeat("wants nothing any more", subscribed_topic_names=[])
        first.acknowledge("gave all back")
        second.heartbeat("gets all")
        second.acknowledge("owns all")
        look(side, "one reads all", group)
        second.leave("leaves")
        second.leave("leaves again")
        first.heartbeat("gets the rest")
        first.leave("leaves")
        look(side, "empty", group)
        side.ask("listed", ListGroupsRequest(types_filter=["consumer"], states_filter=["Dead"]), 5)


@script
def heartbeats_that_are_refused(side: Side) -> None:
    for version in side.versions(BEAT):
        group = f"heartbeats-refused-{version}"
        topic = ready(side, group, 2)
        one = HeartbeatMember(side, group, f"{group}-a", version)
        cases: Changes = {
            "no group": {"group_id": ""},
            "no timeout": {"rebalance_timeout_ms": -1},
            "no topics": {"subscribed_topic_names": None},
            "owns before it joined": {
                "topic_partitions": [TopicPartitions(topic_id=words.UNKNOWN_ID, partitions=[0])]
            },
            "owned is null": {"topic_partitions": None},
            "an assignor that is not there": {"server_assignor": "nobody"},
            "an instance without a name": {"instance_id": ""},
            "leaves for a while without one": {"member_epoch": LEAVE_FOR_A_WHILE},
            "an epoch that cannot be": {"member_epoch": -3},
            "an epoch of a group that is not there": {"member_epoch": 5},
        }
        for label, changes in cases.items():
            one.join(label, topic, **changes)
        one.join("joins", topic, server_assignor="range")
        one.acknowledge("owns all")
        before = one.epoch
        one.heartbeat("reads another topic, too", subscribed_topic_names=[topic, "nothing"])
        one.acknowledge("acknowledges it")
        for label, epoch in (("old", before), ("next", one.epoch + 1), ("none", 99)):
            one.heartbeat(f"{label} epoch", member_epoch=epoch, topic_partitions=[])
        one.heartbeat("another member", member_id="nobody", member_epoch=one.epoch)
        one.heartbeat("another group", group_id="no-such-group")
        one.heartbeat("another assignor", server_assignor="uniform")
        one.join("joins anew", topic)
        look(side, "as it is", group)
        one.leave("leaves")


@script
def instances_leave_for_a_while(side: Side) -> None:
    for version in side.versions(BEAT):
        group = f"instances-{version}"
        topic = ready(side, group, 2)
        first = HeartbeatMember(side, group, f"{group}-a", version, instance="one")
        first.join("joins", topic)
        first.acknowledge("owns all")
        double = HeartbeatMember(side, group, f"{group}-b", version, instance="one")
        double.join("comes while the other is there", topic)
        first.heartbeat("by another instance", instance_id="two")
        first.leave("leaves for a while", LEAVE_FOR_A_WHILE)
        look(side, "away", group)
        first.heartbeat("continues although it left")
        double.join("takes its place", topic)
        double.acknowledge("owns all")
        first.heartbeat("comes too late")
        first.leave("leaves too late")
        look(side, "replaced", group)
        double.leave("leaves")
        look(side, "empty", group)


@script
def expressions_subscribe(side: Side) -> None:
    for version in side.versions(BEAT, since=1):
        group = f"expressions-{version}"
        ready(side, group, 2)
        one = HeartbeatMember(side, group, f"{group}-a", version)
        for expression in ("(", "[", "a(?!b)", ""):
            one.join(f"{expression!r}", subscribed_topic_regex=expression)
            one.leave(f"leaves {expression!r}")
        one.join("names an expression and nothing", subscribed_topic_regex="nothing-.*")
        look(side, "nothing matches", group)
        one.leave("leaves")


@script
def members_of_epochs_commit(side: Side) -> None:
    for version in side.versions(8, since=9):
        group = f"epochs-commit-{version}"
        topic = ready(side, group, 2)
        by_id: dict[str, Any] = {}
        if version >= words.OFFSETS_BY_ID:
            by_id["topic_id"] = side.topic_id(topic)
        one = HeartbeatMember(side, group, f"{group}-a", 1)
        one.join("joins", topic)
        one.acknowledge("owns all")
        cases: Changes = {
            "in its epoch": {},
            "unknown member": {"member_id": "nobody"},
            "next epoch": {"generation_id_or_member_epoch": one.epoch + 1},
            "from outside": {"member_id": "", "generation_id_or_member_epoch": -1},
        }
        for label, changes in cases.items():
            sender: dict[str, Any] = {
                "member_id": one.member_id,
                "generation_id_or_member_epoch": one.epoch,
            }
            request = words.commit(group, topic, {0: 3}, **{**sender, **changes}, **by_id)
            side.ask(label, request, version)
            member: dict[str, Any] = {"member_id": changes.get("member_id", one.member_id) or None}
            epoch = changes.get("generation_id_or_member_epoch", one.epoch)
            asking = words.committed(group, topic, **by_id, **member, member_epoch=epoch)
            side.ask(f"{label}, fetched", asking, version)
        one.leave("leaves")
        side.ask("what holds", words.committed(group, None), 7)
