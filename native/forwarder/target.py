"""LinkTarget: a forwarder appends its batches to one partition of a server.

Rule: batches carry the forwarder's own producer id and consecutive sequence numbers, so that the
target also refuses every batch that follows a refused one. A new start is a new epoch: the target
refuses batches of the old one that are still in flight. Consumers of the target do not see this.
Must not know: the source.
"""

from contextlib import suppress

from kledger.batches.header import read_record_count, set_producer
from kledger.ledger import Buffer
from kledger.native.broker import Broker, ProducerLink
from kledger.native.errors import KledgerError, Unavailable
from kledger.native.producer_sequence_state import PRODUCER_ID_COUNT, ProducerSequence
from kledger.runtime.entropy import Entropy

SENDS_IN_FLIGHT_MAX = 5
"""The number of batches that a partition remembers per producer, as in Kafka."""


class LinkTarget:
    """One partition behind a broker."""

    def __init__(
        self, broker: Broker, topic: str, partition: int, *, name: str, entropy: Entropy
    ) -> None:
        """Args: name: of the producer."""
        self._broker = broker
        self._topic = topic
        self._partition = partition
        self._name = name
        self._entropy = entropy
        self._sequence = ProducerSequence(entropy.below(PRODUCER_ID_COUNT))
        self._is_known = False
        self._link: ProducerLink | None = None
        self._failure: KledgerError | None = None

    @property
    def sends_in_flight_max(self) -> int:
        """1 until the partition knows the producer: it accepts any first sequence number."""
        return SENDS_IN_FLIGHT_MAX if self._is_known else 1

    async def start(self) -> None:
        """Open a link and begin a new epoch. Raises as `Broker.open_producer`."""
        await self._leave()
        self._failure = None
        self._is_known = False
        self._sequence.begin_epoch(self._entropy.below(PRODUCER_ID_COUNT))
        epoch = self._sequence.identity

        def on_ended(error: KledgerError | None) -> None:
            if epoch == self._sequence.identity:
                self._fail(error or Unavailable("the server has closed the link"))

        self._link = await self._broker.open_producer(
            self._topic, self._partition, name=self._name, on_ended=on_ended
        )

    async def send(self, batch: Buffer) -> None:
        """Append a batch after the earlier ones."""
        if self._failure is not None:
            raise self._failure
        if self._link is None:
            raise Unavailable("the producer has no link")
        stamped = bytearray(batch)
        numbers = self._sequence.take(read_record_count(stamped))
        set_producer(stamped, numbers.producer_id, numbers.epoch, numbers.base_sequence)
        try:
            await self._link.send(stamped)
        except KledgerError as error:
            self._fail(error)
            raise
        self._is_known = True

    async def close(self) -> None:
        """Close the link."""
        await self._leave()

    def _fail(self, error: KledgerError) -> None:
        """Keep the first failure: it is the cause of the others."""
        if self._failure is None:
            self._failure = error

    async def _leave(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            with suppress(KledgerError):  # it may have ended already
                await link.close()
