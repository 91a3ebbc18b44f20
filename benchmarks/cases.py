"""Cases: what is measured, with which client, against which servers.

Rule: pure data. A case names subjects; a subject is a server together with what its topics ask for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

Kind = Literal[
    "produce", "consume", "request", "round-trip", "latency",
    "start", "restart", "cold-consume", "idle-connections", "idle-fetches", "space",
    "transactions", "rebalance", "many-topics", "idle-partitions", "session-fetches",
    "ledger", "many-ledgers", "cursor-holes", "server-in-process", "long-walks",
    "native-produce", "native-consume", "native-shared", "native-drain", "table-view",
    "named-publish", "named-receive", "named-commit",
    "authorizer", "tls-produce", "tls-consume",
    "workers", "worker-restart", "compaction", "beside-compaction",
    "tier-file", "tier-s3", "slow-tier", "cluster-engine", "spark", "scale",
    "cluster-broker", "cluster-start", "nodes",
]  # fmt: skip
Client = Literal["librdkafka", "java", "aiokafka", "raw"]

OS, FSYNC = "kledger os", "kledger fsync"
KAFKA, KAFKA_SYNC = "Kafka", "Kafka flush.messages=1"
SUBJECTS = (OS, KAFKA, FSYNC, KAFKA_SYNC)
WORKERS = "kledger os, 2 workers"
CLUSTER, NODES = "kledger without a disk", "kledger, 3 servers of 6 nodes"
EMBEDDED, REMOTE = "native embedded", "native remote"
GROUP, GROUP_ASYNCIO = "Kafka group, librdkafka", "Kafka group, aiokafka"
NATIVE_VIA = {
    EMBEDDED: "embedded", REMOTE: "remote", GROUP: "librdkafka", GROUP_ASYNCIO: "aiokafka",
}  # fmt: skip
"""Ways to the same records on kledger, and what the load program calls them."""
NAMED, NAMED_REMOTE = "named topic embedded", "named topic remote"
NAMED_VIA = {NAMED: "embedded", NAMED_REMOTE: "remote"}
"""The same for named topics."""
SPARK_DIRECT, SPARK_BROKER = "kledger, direct", "kledger, broker"
SPARK_SOURCE, SPARK_SOURCE_KAFKA = "kafka source on kledger", "kafka source on Apache Kafka"
SPARK_SUBJECTS = (SPARK_DIRECT, SPARK_BROKER, SPARK_SOURCE, SPARK_SOURCE_KAFKA)
"""Spark sources over the same records; without a name of its own the server is kledger."""
# What a name on the command line may end in, and the subjects that it then means.
DURABILITY_SUFFIXES = {"-os": (OS, KAFKA), "-fsync": (FSYNC, KAFKA, KAFKA_SYNC)}
_PAIR = (OS, KAFKA)
_OWN = (OS, FSYNC)
QUICK_SHARE = 0.25
_QUICK_PARTITIONS_MAX = {"many-topics": 2_000, "idle-partitions": 5_000, "scale": 5_000}
_SIZES = {"100b": 100, "1k": 1000}
_TLS_KINDS: tuple[Kind, ...] = ("tls-produce", "tls-consume")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One measurement; sizes in bytes of payload, 1 KB being 1,000 bytes."""

    name: str
    kind: Kind
    client: Client = "librdkafka"
    record_bytes: int = 1000
    records: int = 0
    acks: Literal["1", "all"] = "all"
    codec: Literal["none", "lz4"] = "none"
    partitions: int = 1
    consumers: int = 1
    in_flight: int = 5
    protocol: Literal[1, 2] = 1
    repeats: int = 1
    seconds: float = 0.0
    ranges_max: int = 0
    duplicates_percent: int = 0
    subjects: tuple[str, ...] = SUBJECTS

    @property
    def payload_bytes(self) -> int:
        """Bytes of all values together, as often as they are sent or read."""
        return self.record_bytes * self.records * self.repeats


def _produce(name: str, record_bytes: int, records: int, **more: Any) -> Case:
    case = Case(name=name, kind="produce", record_bytes=record_bytes, records=records)
    return replace(case, **more)


def _consume(name: str, record_bytes: int, records: int, **more: Any) -> Case:
    case = _produce(name, record_bytes, records, subjects=_PAIR)
    return replace(case, **{"kind": "consume", **more})


def _transactions(name: str, transactions: int, **more: Any) -> Case:
    case = Case(name=name, kind="transactions", record_bytes=100, records=transactions)
    return replace(case, **{"subjects": _PAIR, **more})


def _ledger(name: str, record_bytes: int, records: int) -> Case:
    return Case(name=name, kind="ledger", record_bytes=record_bytes, records=records, subjects=_OWN)


def _holes(name: str, holes: int, ranges_max: int) -> Case:
    return Case(
        name=name, kind="cursor-holes", records=holes, ranges_max=ranges_max, subjects=(FSYNC,)
    )


def _compaction(size: str, records: int, duplicates_percent: int) -> Case:
    return Case(
        name=f"compaction-{size}-{duplicates_percent}", kind="compaction",
        record_bytes=_SIZES[size], records=records, duplicates_percent=duplicates_percent,
        subjects=_PAIR,
    )  # fmt: skip


def _native(kind: Kind, size: str, records: int, *, consumers: int = 1) -> Case:
    """Give a case of the native client; a group shares partitions, so there are as many of them."""
    members = f"-{consumers}" if kind == "native-shared" else ""
    return Case(
        name=f"{kind}{members}-{size}", kind=kind, record_bytes=_SIZES[size], records=records,
        partitions=consumers, consumers=consumers, subjects=tuple(NATIVE_VIA),
    )  # fmt: skip


def _spark(size: str, records: int, codec: Literal["none", "lz4"]) -> Case:
    return Case(
        name=f"spark-{size}" + ("" if codec == "none" else f"-{codec}"), kind="spark",
        record_bytes=_SIZES[size], records=records, codec=codec, partitions=4,
        subjects=SPARK_SUBJECTS,
    )  # fmt: skip


def _named(kind: Kind, records: int) -> Iterator[Case]:
    """Give the cases of a named topic of one channel, and of as many as it has by default."""
    subjects: tuple[str, ...] = (NAMED, NAMED_REMOTE, EMBEDDED, REMOTE)
    if kind != "named-commit":  # a Kafka group commits what it has received at once
        subjects += (GROUP, GROUP_ASYNCIO)
    for channels in (1, 17):
        yield Case(
            name=f"{kind}-{channels}", kind=kind, record_bytes=100, records=records,
            partitions=channels, subjects=subjects,
        )  # fmt: skip


CASES = (
    # What the targets hold comes first: behind the time limit a case gets one round only.
    Case(name="start", kind="start", subjects=_PAIR),
    Case(name="server-in-process", kind="server-in-process", subjects=(FSYNC,)),
    _produce("produce-1k", 1000, 250_000),
    _produce("produce-100b", 100, 1_000_000),
    Case(name="request-100b", kind="request", client="raw", record_bytes=100, seconds=3),
    Case(
        name="round-trip-100b", kind="round-trip", client="raw", record_bytes=100,
        in_flight=1, seconds=3,
    ),
    Case(
        name="authorizer", kind="authorizer", client="raw", record_bytes=100, records=1_000,
        seconds=2, subjects=(OS,),
    ),
    *(
        Case(name=kind, kind=kind, client="java", records=250_000, subjects=_PAIR)
        for kind in _TLS_KINDS
    ),
    Case(
        name="workers", kind="workers", client="raw", record_bytes=65_000, records=12_000,
        partitions=8, subjects=(OS, WORKERS),
    ),
    Case(
        name="worker-restart", kind="worker-restart", client="raw", record_bytes=1000,
        records=50_000, partitions=8, repeats=6, subjects=(WORKERS,),
    ),
    Case(name="latency-1000", kind="latency", record_bytes=100, records=8_000),
    # Small enough for the cache of 64 MiB, so read from memory; the next two are larger.
    _consume("consume-tail-1k", 1000, 50_000, repeats=6),
    _consume("consume-tail-100b", 100, 450_000, repeats=2),
    _consume("consume-1k", 1000, 250_000),
    _consume("consume-100b", 100, 1_000_000),
    _produce("produce-java-1k", 1000, 250_000, client="java"),
    _produce("produce-java-100b", 100, 1_500_000, client="java", subjects=_PAIR),
    _consume("consume-java-1k", 1000, 300_000, client="java"),
    _consume("consume-java-100b", 100, 1_500_000, client="java"),
    _consume("cold-consume-1k", 1000, 300_000, kind="cold-consume"),
    Case(name="idle-connections", kind="idle-connections", seconds=10, subjects=_PAIR),
    Case(
        name="idle-fetches", kind="idle-fetches", partitions=100_000, seconds=10, subjects=(OS,)
    ),
    _transactions("transactions-librdkafka", 400),
    _transactions("transactions-raw-1", 1_000, client="raw"),
    _transactions("transactions-raw-2", 1_000, client="raw", protocol=2),
    Case(name="rebalance-50", kind="rebalance", consumers=50, repeats=40, subjects=_PAIR),
    Case(
        name="many-topics", kind="many-topics", partitions=20_000, repeats=50, subjects=_PAIR
    ),
    Case(name="idle-partitions", kind="idle-partitions", partitions=10_000, subjects=(OS,)),
    Case(
        name="session-fetches", kind="session-fetches", partitions=1_000, records=400,
        subjects=_PAIR,
    ),
    Case(name="restart-1g", kind="restart", record_bytes=10_000, records=107_400, subjects=_PAIR),
    Case(
        name="space-2g", kind="space", record_bytes=10_000, records=214_750, seconds=12,
        subjects=_OWN,
    ),
    Case(name="scale", kind="scale", partitions=100_000, seconds=10, subjects=_OWN),
    Case(
        name="many-ledgers", kind="many-ledgers", partitions=10_000, repeats=10, subjects=_OWN
    ),
    _holes("cursor-holes", 1_000_000, 10_000),
    _holes("cursor-holes-all-kept", 1_000_000, 1_000_000),
    Case(name="long-walks", kind="long-walks", records=400_000, subjects=(OS,)),
    _ledger("ledger-100b", 100, 40_000),
    _ledger("ledger-64k", 65_536, 900),
    *(
        Case(name=kind, kind=kind, record_bytes=65_536, records=8_192, subjects=(OS,))
        for kind in ("tier-file", "tier-s3")
    ),
    Case(name="slow-tier", kind="slow-tier", record_bytes=1000, records=4_000, subjects=_OWN),
    Case(
        name="cluster-engine", kind="cluster-engine", record_bytes=16_384, records=40_000,
        subjects=(FSYNC,),
    ),
    Case(
        name="cluster-broker", kind="cluster-broker", client="raw", record_bytes=16_384,
        records=60_000, partitions=8, in_flight=512, seconds=10, subjects=(CLUSTER, FSYNC),
    ),
    Case(
        name="cluster-start", kind="cluster-start", partitions=100_000, subjects=(CLUSTER,),
    ),
    Case(
        name="nodes", kind="nodes", record_bytes=100, records=400, partitions=1_000,
        subjects=(NODES, FSYNC),
    ),
    *_named("named-publish", 60_000),
    *_named("named-receive", 100_000),
    *_named("named-commit", 60_000),
    _produce("produce-10k", 10_000, 30_000),
    _produce("produce-raw-64k", 65_000, 3_000, client="raw"),
    _produce("produce-1k-100p", 1000, 100_000, partitions=100),
    _produce("produce-1k-acks1", 1000, 250_000, acks="1", subjects=_PAIR),
    _produce("produce-1k-lz4", 1000, 250_000, codec="lz4", subjects=_PAIR),
    _produce("produce-100b-lz4", 100, 1_000_000, codec="lz4", subjects=_PAIR),
    _consume("consume-10k", 10_000, 30_000),
    _consume("consume-1k-lz4", 1000, 250_000, codec="lz4"),
    _consume("consume-1k-100p", 1000, 250_000, partitions=100),
    _produce("produce-aiokafka-1k", 1000, 40_000, client="aiokafka", subjects=_PAIR),
    _consume("consume-aiokafka-1k", 1000, 40_000, client="aiokafka"),
    _produce("produce-java-10k", 10_000, 30_000, client="java", subjects=_PAIR),
    _produce("produce-java-1k-acks1", 1000, 300_000, client="java", acks="1", subjects=_PAIR),
    _produce("produce-java-1k-lz4", 1000, 300_000, client="java", codec="lz4", subjects=_PAIR),
    _produce("produce-java-1k-100p", 1000, 200_000, client="java", partitions=100, subjects=_PAIR),
    *(_native("native-produce", size, 60_000) for size in _SIZES),
    *(_native("native-consume", size, 100_000) for size in _SIZES),
    *(_native("native-shared", "1k", 60_000, consumers=each) for each in (1, 8)),
    _native("native-drain", "1k", 100_000),
    *(_compaction("100b", 2_000_000, percent) for percent in (10, 90)),
    *(_compaction("1k", 400_000, percent) for percent in (10, 90)),
    Case(
        name="beside-compaction", kind="beside-compaction", record_bytes=1000, records=1_073_742,
        duplicates_percent=50, seconds=20, subjects=_OWN,
    ),
    Case(
        name="table-view", kind="table-view", record_bytes=100, records=1_000_000,
        subjects=(EMBEDDED, REMOTE),
    ),
    _spark("1k", 1_000_000, "none"),
    _spark("1k", 1_000_000, "lz4"),
    _spark("100b", 5_000_000, "none"),
    _spark("100b", 5_000_000, "lz4"),
)  # fmt: skip


def choose(names: Iterable[str], cases: Iterable[Case] = CASES) -> list[Case]:
    """Give the cases that the names mean, in the order of the list; all of them without names.

    Args:
        names: a case, or a case with a durability behind it (`produce-1k-os`), or the beginning
            of several followed by a star (`consume-*`).
        cases: what there is to choose from.

    Raises:
        ValueError: a name means nothing.
    """
    available = list(cases)
    wanted = list(names)
    if not wanted:
        return available
    chosen: dict[str, Case] = {}
    for name in wanted:
        found = _matching(name, available)
        if not found:
            raise ValueError(f"no case {name!r}; there are: {', '.join(c.name for c in available)}")
        chosen |= {case.name: case for case in found}
    return [chosen[case.name] for case in available if case.name in chosen]


def _matching(name: str, cases: list[Case]) -> list[Case]:
    """Give what one name means; three cases: the name itself, a beginning, a durability."""
    exact = [case for case in cases if case.name == name]
    if exact:
        return exact
    if name.endswith("*"):
        return [case for case in cases if case.name.startswith(name[:-1])]
    for suffix, subjects in DURABILITY_SUFFIXES.items():
        short = [case for case in cases if case.name + suffix == name]
        if short:
            kept = tuple(each for each in short[0].subjects if each in subjects)
            return [replace(short[0], subjects=kept)]
    return []


def quick(case: Case, share: float = QUICK_SHARE) -> Case:
    """Shrink a case: the same shape, a share of the work, a tenth of a mass of partitions."""
    return replace(
        case,
        records=int(case.records * share),
        seconds=case.seconds / 3,
        partitions=min(case.partitions, _QUICK_PARTITIONS_MAX.get(case.kind, 10_000)),
    )
