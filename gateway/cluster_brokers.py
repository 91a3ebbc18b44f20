"""Cluster brokers: the brokers of a cluster; each writes a record of itself to a shared table.

Rule: a broker writes its record when its listeners are bound, and every broker reads it. Shard
numbers assign the coordinators to the brokers that the cluster was created with. This never
changes, because the records of groups and transactions are in the stores of these brokers.
Must not know: partitions, requests.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kledger.gateway.brokers import AdvertisedAddress, BrokerAddress
from kledger.ledger import Fenced
from kledger.ledger.record_table import RecordRows, RecordTable
from kledger.ledger.row_format import I32, RowFormat, RowKey, converted, json_rest

if TYPE_CHECKING:
    from kledger.ledger import TableStore
    from kledger.runtime.clock import Clock

FIRST_LEADER_EPOCH: Final = 1
"""Under which the first owner of a node leads its partitions."""


class BrokerRecord(NamedTuple):
    """A broker as it is stored.

    Attributes:
        addresses: what Kafka clients connect to, by the name of the listener.
        native: what native clients connect to, HOST:PORT; empty: they cannot.
        peers: what the other brokers connect to; None: they know it.
        leader_epoch: under which it leads its partitions.
    """

    broker_id: int
    addresses: Mapping[str, tuple[str, int]]
    native: str
    peers: tuple[str, int] | None = None
    leader_epoch: int = 0


def _record(fields: Any) -> BrokerRecord:
    return BrokerRecord(
        int(fields["broker_id"]),
        {str(name): (str(host), int(port)) for name, (host, port) in fields["addresses"].items()},
        str(fields["native"]),
        None if fields.get("peers") is None else (str(fields["peers"][0]), int(fields["peers"][1])),
        int(fields.get("leader_epoch", 0)),
    )


_KEYS = RowKey("broker", b"gateway/broker\x01", broker_id=I32)
_BROKERS = RowFormat[BrokerRecord](
    "broker", {1: converted(json_rest(), BrokerRecord._asdict, _record)}
)


def _may_have_moved(known: BrokerRecord | None, record: BrokerRecord) -> bool:
    """Return whether clients may hold an older address of a broker.

    A broker that starts does not know where the others were before, only that they were taken over.

    Args:
        known: the record before; None: this broker starts, and loads the first one.
        record: the present one.
    """
    if known is None:
        return record.leader_epoch > FIRST_LEADER_EPOCH
    return known.addresses != record.addresses


def _decode(key: bytes, row: bytes) -> tuple[int, BrokerRecord]:
    (broker_id,) = _KEYS.decode(key)
    return broker_id, _BROKERS.decode(row, which=broker_id)


class ClusterBrokers:
    """The brokers of a cluster, as one of them knows them."""

    def __init__(
        self,
        tables: "TableStore",
        broker_id: int,
        coordinator_ids: Sequence[int],
        clock: "Clock | None" = None,
        silent: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        """Load the records of all brokers.

        Args:
            tables: of the cluster.
            broker_id: of this broker.
            coordinator_ids: the brokers that coordinate groups and transactional ids.
            clock: says how long ago a broker has moved; None: brokers do not move.
            silent: brokers that do not commit any more, with the leader epoch in which they
                did; somebody else keeps it up to date.
        """
        self.broker_id = broker_id
        self._clock = clock
        self._silent = silent
        self._followed: dict[int, BrokerRecord] = {}
        self._moved_at_ms: dict[int, int] = {}
        self._tables = tables
        self._coordinator_ids = tuple(coordinator_ids)
        self._records = RecordTable(
            tables,
            RecordRows[int, BrokerRecord](
                prefix=_KEYS.prefix,
                encode_key=_KEYS.encode,
                encode=_BROKERS.encode,
                decode=_decode,
            ),
            self._replayed,
        )
        self._changed: Callable[[BrokerRecord], None] | None = None
        self._records.load()

    def follow(self, changed: Callable[[BrokerRecord], None]) -> None:
        """Call `changed` for every broker that is known, and whenever one has started."""
        self._changed = changed
        for record in self._records.durable.values():
            changed(record)

    def _replayed(self, broker_id: int) -> None:
        record = self._records.get(broker_id)
        if record is None:
            return
        known = self._followed.get(broker_id)
        self._followed[broker_id] = record
        if self._clock is not None and _may_have_moved(known, record):
            self._moved_at_ms[broker_id] = self._clock.monotonic_ms()
        if self._changed is not None:
            self._changed(record)

    def moves_within(self, milliseconds: int) -> Mapping[int, int]:
        """Return brokers that moved lately, with the leader epoch that began with the last move."""
        if self._clock is None:
            return {}
        now_ms = self._clock.monotonic_ms()
        return {
            broker_id: self._followed[broker_id].leader_epoch
            for broker_id, moved_at_ms in self._moved_at_ms.items()
            if now_ms - moved_at_ms < milliseconds
        }

    @property
    def silent_ids(self) -> Set[int]:
        """Brokers that seem to be lost, until they have registered in a later leader epoch."""
        return {
            each
            for each, epoch in self._silent.items()
            if (record := self._records.get(each)) is not None and record.leader_epoch <= epoch
        }

    async def register(self, record: BrokerRecord) -> None:
        """Let clients of every broker know what they connect to for this one.

        Raises:
            Fenced: another process has become this broker meanwhile, in a later leader epoch.
            LedgerError: they do not.
        """
        async with self._tables.change_lock():
            found = self._records.get(record.broker_id)
            if found is not None and found.leader_epoch > record.leader_epoch:
                raise Fenced(
                    f"broker {record.broker_id} was taken over: expected leader epoch "
                    f"{record.leader_epoch} to be the newest, got {found.leader_epoch}"
                )
            error = await self._records.submit(record.broker_id, record)
        if error is not None:
            raise error

    def find(self, broker_id: int) -> BrokerRecord | None:
        """Return a broker; None: it has never started."""
        return self._records.get(broker_id)

    def all(self, listener: AdvertisedAddress) -> Sequence[BrokerAddress]:
        """Return the brokers that have a listener of that name, by id."""
        found = [BrokerAddress(self.broker_id, listener.host, listener.port)]
        for record in self._records.durable.values():
            address = record.addresses.get(listener.name)
            if address is not None and record.broker_id != self.broker_id:
                found.append(BrokerAddress(record.broker_id, *address))
        return sorted(found)

    @property
    def coordinator_ids(self) -> Set[int]:
        """The brokers that coordinate groups and transactional ids."""
        return frozenset(self._coordinator_ids)

    def coordinator_id(self, shard: int) -> int:
        """Return the broker that coordinates the groups or transactional ids of a shard."""
        return self._coordinator_ids[shard % len(self._coordinator_ids)]

    def coordinated_shards(self, count: int) -> list[int]:
        """Return which of so many shards this broker coordinates."""
        return [each for each in range(count) if self.coordinator_id(each) == self.broker_id]

    @property
    def controller_id(self) -> int:
        """The broker that clients ask for changes: the first one, though each can make them."""
        return self._coordinator_ids[0]
