"""Consumer roster: the members of a consumer group, and who has which partition.

Rule: a partition has at most one holder, a static id at most one member; both are checked at every
change.
Must not know: epochs of the group, assignors, time.
"""

from collections.abc import Iterable, Iterator

from kledger.gateway.coordinator.consumer.consumer_member_state import ConsumerMember
from kledger.gateway.coordinator.consumer_messages import TopicIdPartition


class ConsumerRoster:
    """The members by id."""

    __slots__ = ("_holders", "_members", "_static_ids")

    def __init__(self, members: Iterable[ConsumerMember] = ()) -> None:
        self._members: dict[str, ConsumerMember] = {}
        self._static_ids: dict[str, str] = {}
        self._holders: dict[TopicIdPartition, str] = {}
        for member in members:
            self.put(member)

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[ConsumerMember]:
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def get(self, member_id: str) -> ConsumerMember | None:
        """Return a member, or None."""
        return self._members.get(member_id)

    def member(self, member_id: str) -> ConsumerMember:
        """Return a member that there is."""
        return self._members[member_id]

    def holder_of(self, instance_id: str) -> ConsumerMember | None:
        """Return the static member of that instance id, or None."""
        member_id = self._static_ids.get(instance_id)
        return None if member_id is None else self._members[member_id]

    def is_free(self, partition: TopicIdPartition) -> bool:
        """Whether no member has the partition, or is giving it up."""
        return partition not in self._holders

    def put(self, member: ConsumerMember) -> bool:
        """Take a member in, or its new value; return whether that changes anything."""
        before = self._members.get(member.member_id)
        if before == member:
            return False
        if before is not None:
            self._let_go(before)
        if member.instance_id is not None:
            holder = self._static_ids.setdefault(member.instance_id, member.member_id)
            assert holder == member.member_id, f"{member.instance_id} is {holder}"
        for partition in member.held:
            taken = self._holders.setdefault(partition, member.member_id)
            assert taken == member.member_id, f"{partition} belongs to {taken}"
        self._members[member.member_id] = member
        return True

    def remove(self, member_id: str) -> None:
        """Let a member go, with everything it has."""
        self._let_go(self._members.pop(member_id))

    def _let_go(self, member: ConsumerMember) -> None:
        if member.instance_id is not None:
            del self._static_ids[member.instance_id]
        for partition in member.held:
            del self._holders[partition]
