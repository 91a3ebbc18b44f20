"""The flights in the tier: how they get there, and where a reader's entries come from.

Rule: Kafka's own settings (KIP-405) move them, so any admin client can do the same; the numbers
are the server's `topic_stats`. Must not know: what is in the records, what reads them.
"""

import time
from dataclasses import dataclass
from typing import Final

import confluent_kafka
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

import kledger.sync

YEAR_MS: Final = 365 * 24 * 60 * 60 * 1000
MOVED_TIMEOUT_S: Final = 120
ADMIN_TIMEOUT_S: Final = 30
READ_TIMEOUT_S: Final = 300
POLL_S: Final = 0.1
TIERED: Final = {
    "segment.ms": "1",
    "remote.storage.enable": "true",
    "local.retention.ms": str(YEAR_MS),
}
"""Close the ledgers, copy them to the tier, and keep no primary copy of what is a year old."""


class NotMoved(TimeoutError):
    """Ledgers still have a primary copy after `MOVED_TIMEOUT_S`."""


class NotFromTier(AssertionError):
    """A reader got entries from elsewhere than the tier, or none at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TieredTopic:
    """What of a topic is in the tier alone: ledgers with entries, record batches, bytes."""

    ledgers: int
    entries: int
    size: int

    def __str__(self) -> str:
        return f"{self.ledgers} ledgers, {self.size / 1e6:.1f} MB"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryReads:
    """How many entries (record batches) readers got from each source."""

    cache: int
    primary: int
    tier: int

    def since(self, before: "EntryReads") -> "EntryReads":
        """Return what was read after an earlier look."""
        return EntryReads(
            cache=self.cache - before.cache,
            primary=self.primary - before.primary,
            tier=self.tier - before.tier,
        )

    def check_only_tier(self, entries: int) -> None:
        """Check that the tier alone answered.

        Args:
            entries: how many there are; a reader of all of them got each at least once.

        Raises:
            NotFromTier: it did not.
        """
        if self.cache or self.primary or self.tier < entries:
            raise NotFromTier(
                f"expected at least {entries} batches from the tier alone, got {self}"
            )

    def __str__(self) -> str:
        return f"batches from cache {self.cache}, primary {self.primary}, tier {self.tier:,}"


class TierView:
    """One topic of a server, as `topic_stats` shows it."""

    def __init__(self, client: "kledger.sync.Client", topic: str) -> None:
        self._client = client
        self._topic = topic

    def reads(self) -> EntryReads:
        """Return what was read of the topic since the server started."""
        partitions = self._client.topic_stats(self._topic).partitions
        return EntryReads(
            cache=sum(each.reads["cache"] for each in partitions),
            primary=sum(each.reads["primary"] for each in partitions),
            tier=sum(each.reads["tier"] for each in partitions),
        )

    def wait_moved(self) -> TieredTopic:
        """Wait until all entries are in the tier alone.

        Raises:
            NotMoved: they are not in time.
        """
        deadline = time.monotonic() + MOVED_TIMEOUT_S
        while time.monotonic() < deadline:
            stats = self._client.topic_stats(self._topic)
            ledgers = [each for one in stats.partitions for each in one.ledgers if each.entries]
            if all(each.primary_deleted for each in ledgers):
                return TieredTopic(
                    ledgers=len(ledgers),
                    entries=sum(each.entries for each in ledgers),
                    size=sum(each.size for each in ledgers),
                )
            time.sleep(POLL_S)
        left = sum(not each.primary_deleted for each in ledgers)
        raise NotMoved(f"{self._topic}: {left} of {len(ledgers)} ledgers have a primary copy")


def enable_tier(bootstrap: str, topic: str) -> None:
    """Give a topic the settings `TIERED`, as any of Kafka's admin clients does."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in TIERED.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(ADMIN_TIMEOUT_S)


def read_values(bootstrap: str, topic: str) -> list[bytes]:
    """Read a topic from its earliest offset to its end with librdkafka; a null value is empty.

    Raises:
        KafkaException: the server answered with an error.
        TimeoutError: the end was not reached within `READ_TIMEOUT_S`.
    """
    values: list[bytes] = []
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "from-the-tier",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=ADMIN_TIMEOUT_S).topics[topic].partitions
        consumer.assign(
            [
                confluent_kafka.TopicPartition(topic, each, confluent_kafka.OFFSET_BEGINNING)
                for each in partitions
            ]
        )
        ended: set[int | None] = set()
        deadline = time.monotonic() + READ_TIMEOUT_S
        while len(ended) < len(partitions):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic}: not read to its end within {READ_TIMEOUT_S} s")
            for message in consumer.consume(10_000, timeout=1):
                error = message.error()
                if error is None:
                    values.append(message.value() or b"")
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                else:
                    raise confluent_kafka.KafkaException(error)
    finally:
        consumer.close()
    return values
