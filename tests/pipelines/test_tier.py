"""The demonstration's steps in the tier, with a few records instead of a year of flights."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import kledger.sync
from pipelines.demo_server import DemoServer
from pipelines.flights import flight_records, flights_from
from pipelines.tier import EntryReads, NotFromTier, TierView, enable_tier, read_values

TOPIC = "flights"
RECORDS = list(flight_records(flights_from("EWR").head(300), "test"))
WAIT_S = 60


def load(bootstrap: str) -> None:
    """Write the first flights from Newark to a topic of two partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(TOPIC, 2, 1, config={"retention.ms": "-1"})
    admin.create_topics([topic])[TOPIC].result(WAIT_S)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for record in RECORDS:
        producer.produce(TOPIC, record.value, record.key, timestamp=record.timestamp_ms)
    assert 0 == producer.flush(WAIT_S)


def test_records_of_last_year_move_to_the_tier_and_are_read_from_there(tmp_path: Path) -> None:
    with DemoServer(tmp_path / "data", tmp_path / "tier") as server:
        load(server.bootstrap)
        enable_tier(server.bootstrap, TOPIC)
        with kledger.sync.connect(f"kledger://{server.native}") as client:
            moved = TierView(client, TOPIC).wait_moved()
        addresses = server.bootstrap, server.native
        server.restart()
        assert addresses == (server.bootstrap, server.native)
        with kledger.sync.connect(f"kledger://{server.native}") as client:
            view = TierView(client, TOPIC)
            before = view.reads()
            values = read_values(server.bootstrap, TOPIC)
            view.reads().since(before).check_only_tier(moved.entries)
    assert sorted(record.value for record in RECORDS) == sorted(values)
    copies = [each for each in (tmp_path / "tier").rglob("*-ledger-*") if each.is_file()]
    assert 2 * moved.ledgers == len(copies), "data and index of each ledger"
    assert moved.size > 0


def test_records_with_a_primary_copy_do_not_pass_for_the_tiers(tmp_path: Path) -> None:
    with DemoServer(tmp_path / "data", tmp_path / "tier") as server:
        load(server.bootstrap)
        server.restart()
        with kledger.sync.connect(f"kledger://{server.native}") as client:
            view = TierView(client, TOPIC)
            assert len(RECORDS) == len(read_values(server.bootstrap, TOPIC))
            with pytest.raises(NotFromTier, match="tier 0"):
                view.reads().check_only_tier(1)


@pytest.mark.parametrize(
    "reads",
    [
        EntryReads(cache=1, primary=0, tier=10),
        EntryReads(cache=0, primary=1, tier=10),
        EntryReads(cache=0, primary=0, tier=9),
    ],
)
def test_only_the_tier_counts_and_all_of_it(reads: EntryReads) -> None:
    with pytest.raises(NotFromTier, match="expected at least 10 batches"):
        reads.check_only_tier(10)
    EntryReads(cache=0, primary=0, tier=10).check_only_tier(10)
