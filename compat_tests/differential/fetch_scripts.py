"""Fetch, at every version: places, limits, isolation, and sessions (KIP-227)."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from compat_tests.differential import words
from compat_tests.differential.scripts import script
from compat_tests.differential.side import Side
from kledger.gateway.wire.messages.k01_fetch import FetchRequest, FetchTopic, ForgottenTopic
from kledger.gateway.wire.messages.k20_delete_topics import DeleteTopicsRequest
from kledger.gateway.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kledger.gateway.wire.primitives import ZERO_UUID

FETCH: Final = 1
SESSIONS_SINCE: Final = 7
EPOCHS_SINCE: Final = 9


def identity(side: Side, topic: str, version: int) -> UUID:
    """Give the id of a topic where the version names topics by it."""
    return side.topic_id(topic) if version >= words.RECORDS_BY_ID else ZERO_UUID


def cut_before(topic: str, offset: int) -> DeleteRecordsRequest:
    """Move the log start of partition 0."""
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    named = DeleteRecordsTopic(name=topic, partitions=[partition])
    return DeleteRecordsRequest(topics=[named], timeout_ms=10_000)


@script
def fetch_from_every_place(side: Side) -> None:
    topic = side.has("places", 2)
    side.write(topic, *(words.batch(b"a", b"b", b"c") for _ in range(3)))
    side.ask("log start", cut_before(topic, 2), 2)
    for version in side.versions(FETCH):
        topic_id = identity(side, topic, version)
        for offset in (-2, -1, 0, 1, 2, 3, 4, 8, 9, 10, 2**40):
            request = words.fetch(topic, {0: offset}, topic_id=topic_id)
            side.ask(f"offset {offset}", request, version)
        for isolation in (0, 1):
            request = words.fetch(topic, {0: 2, 1: 0}, topic_id=topic_id, isolation_level=isolation)
            side.ask(f"isolation {isolation}", request, version)
        for partition in (2, -1):
            request = words.fetch(topic, {partition: 0, 0: 8}, topic_id=topic_id)
            side.ask(f"partition {partition}", request, version)
        request = words.fetch("no-places", {0: 0}, topic_id=words.UNKNOWN_ID)
        side.ask("unknown topic", request, version)
        side.ask("nothing", words.fetch(topic, {}), version)
        empty = FetchRequest(topics=[FetchTopic(topic=topic, topic_id=topic_id)])
        side.ask("no partitions", empty, version)


@script
def fetch_within_limits(side: Side) -> None:
    topic = side.has("limits", 3)
    size = len(words.batch(b"x" * 1_000))
    for partition in range(3):
        batches = [words.batch(b"x" * 1_000) for _ in range(3)]
        side.write(topic, *batches, partition=partition)
    everywhere = {0: 0, 1: 0, 2: 0}
    for version in side.versions(FETCH):
        topic_id = identity(side, topic, version)
        for partition_max in (0, 1, size, 2 * size, 2 * size + 1):
            request = words.fetch(
                topic, everywhere, topic_id=topic_id, partition_max_bytes=partition_max
            )
            side.ask(f"{partition_max} per partition", request, version)
        for whole in (0, 1, 4 * size, 4 * size + 1):
            request = words.fetch(topic, everywhere, topic_id=topic_id, max_bytes=whole)
            side.ask(f"{whole} in all", request, version)
        for wait_ms, bytes_min in ((0, 100), (0, 1 << 20), (30, 1 << 20), (30, 0)):
            request = words.fetch(
                topic, {0: 6}, topic_id=topic_id, max_wait_ms=wait_ms, min_bytes=bytes_min
            )
            side.ask(f"{bytes_min} within {wait_ms} ms", request, version)


@script
def fetch_checks_the_leader_epoch(side: Side) -> None:
    topic = side.has("epochs")
    side.write(topic, words.batch(b"a"))
    for version in side.versions(FETCH, since=EPOCHS_SINCE):
        topic_id = identity(side, topic, version)
        for epoch in (-2, -1, 0, 1):
            request = words.fetch(topic, {0: 0}, topic_id=topic_id, leader_epoch=epoch)
            side.ask(f"epoch {epoch}", request, version)


class Session:
    """A client's side of one session."""

    def __init__(self, side: Side, topic: str, version: int) -> None:
        """Ask about one topic at one version."""
        self._side = side
        self.topic = topic
        self.version = version
        self.topic_id = identity(side, topic, version)
        self.session_id = 0

    def ask(
        self, label: str, offsets: dict[int, int], epoch: int, *, forgotten: tuple[int, ...] = ()
    ) -> None:
        """Fetch within the session; a new id is kept."""
        request = words.fetch(self.topic, offsets, topic_id=self.topic_id)
        request.session_id, request.session_epoch = self.session_id, epoch
        if forgotten:
            gone = ForgottenTopic(
                topic=self.topic, topic_id=self.topic_id, partitions=list(forgotten)
            )
            request.forgotten_topics_data = [gone]
        answer = self._side.ask(label, request, self.version)
        self.session_id = answer.session_id or self.session_id


@script
def fetch_session_returns_changes(side: Side) -> None:
    for version in side.versions(FETCH, since=SESSIONS_SINCE):
        topic = side.has(f"session-{version}", 3)
        side.write(topic, words.batch(b"a"), partition=0)
        side.write(topic, words.batch(b"b"), partition=1)
        session = Session(side, topic, version)
        session.ask("new", {0: 0, 1: 0, 2: 0}, 0)
        session.ask("nothing is said, all comes again", {}, 1)
        session.ask("two move on", {0: 1, 1: 1}, 2)
        session.ask("nothing changed", {}, 3)
        side.write(topic, words.batch(b"c"), partition=2)
        session.ask("one has data", {}, 4)
        session.ask("it is there until asked further", {}, 5)
        session.ask("out of range", {2: 50}, 6)
        session.ask("the error comes again", {}, 7)
        session.ask("a partition that is not there", {7: 0, 2: 1}, 8)
        session.ask("it comes again", {}, 9)
        session.ask("it is forgotten", {}, 10, forgotten=(7,))
        session.ask("what was never there is forgotten", {}, 11, forgotten=(9,))
        session.ask("all are forgotten", {}, 12, forgotten=(0, 1, 2))
        session.ask("is it still there", {0: 0}, 13)


@script
def fetch_session_keeps_count(side: Side) -> None:
    for version in side.versions(FETCH, since=SESSIONS_SINCE):
        topic = side.has(f"count-{version}", 2)
        side.write(topic, words.batch(b"a"))
        session = Session(side, topic, version)
        session.ask("new", {0: 0}, 0)
        session.ask("next", {}, 1)
        session.ask("the same again", {}, 1)
        session.ask("one is left out", {}, 3)
        session.ask("still going", {}, 2)
        session.ask("begin anew within it", {0: 0, 1: 0}, 0)
        session.ask("the new one continues", {}, 1)
        session.ask("close", {0: 0}, -1)
        session.ask("it is closed", {}, 2)
        stranger = Session(side, topic, version)
        stranger.ask("no session, epoch -1", {0: 0}, -1)
        stranger.ask("no session, epoch 1", {0: 0}, 1)
        stranger.ask("no session, epoch -2", {0: 0}, -2)
        stranger.session_id = 12_345
        stranger.ask("unknown session", {0: 0}, 1)
        stranger.ask("unknown session begins anew", {0: 0}, 0)
        empty = Session(side, topic, version)
        empty.ask("a session about nothing", {}, 0)
        empty.ask("that gets a partition", {0: 0}, 1)


@script
def fetch_session_across_names_and_ids(side: Side) -> None:
    for before, after in ((12, 13), (13, 12)):
        topic = side.has(f"across-{before}")
        session = Session(side, topic, before)
        session.ask("new", {0: 0}, 0)
        session.version, session.topic_id = after, identity(side, topic, after)
        session.ask("the other kind", {}, 1)
        session.ask("the other kind with a partition", {0: 0}, 1)
        session.ask("begin anew", {0: 0}, 0)


@script
def fetch_session_of_unknown_topics(side: Side) -> None:
    for version in side.versions(FETCH, since=SESSIONS_SINCE):
        topic = f"later-{version}"
        session = Session(side, side.has(f"known-{version}"), version)
        session.ask("new", {0: 0}, 0)
        known, session.topic = session.topic, topic
        known_id, session.topic_id = session.topic_id, words.UNKNOWN_ID
        session.ask("unknown topic", {0: 0}, 1)
        session.ask("it comes again", {}, 2)
        session.ask("it is forgotten", {}, 3, forgotten=(0,))
        session.topic, session.topic_id = known, known_id
        session.ask("the other one is there", {0: 0}, 4)


@script
def fetch_session_of_a_deleted_topic(side: Side) -> None:
    for version in side.versions(FETCH, since=SESSIONS_SINCE):
        topic = side.has(f"deleted-{version}", 2)
        side.write(topic, words.batch(b"a"))
        session = Session(side, topic, version)
        session.ask("new", {0: 1, 1: 0}, 0)
        side.ask("delete", DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 4)
        request = words.fetch(topic, {0: 1}, topic_id=session.topic_id)
        side.ask_until("outside", request, version, lambda one: any(_codes(one)))
        session.ask("within", {}, 1)
        session.ask("within, again", {}, 2)


def _codes(answer: Any) -> list[int]:
    return [each.error_code for topic in answer.responses for each in topic.partitions]
