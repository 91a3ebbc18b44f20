"""Targets: what the figures are to reach, as ratios to Apache Kafka in the same run.

Rule: pure. A missed target shows by how much; the reasons are in `remarks`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from benchmarks.cases import (
    CLUSTER,
    EMBEDDED,
    FSYNC,
    GROUP_ASYNCIO,
    KAFKA,
    KAFKA_SYNC,
    NAMED,
    NAMED_REMOTE,
    NODES,
    OS,
    REMOTE,
    SPARK_DIRECT,
    SPARK_SOURCE,
    SPARK_SOURCE_KAFKA,
    WORKERS,
)
from benchmarks.results import Results


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One limit: a ratio of two subjects, or a plain figure when `against` is None."""

    what: str
    case: str
    figure: str
    subject: str
    against: str | None
    limit: float
    better: Literal["lower", "higher"] = "lower"
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a target went; `found` is None when it was not measured in this run."""

    target: Target
    found: float | None

    @property
    def is_reached(self) -> bool:
        """True when the figure lies on the right side of the limit."""
        if self.found is None:
            return False
        if self.target.better == "lower":
            return self.found <= self.target.limit
        return self.found >= self.target.limit

    @property
    def missed_by(self) -> float:
        """By which share of the limit the figure lies on the wrong side; 0 when reached."""
        if self.found is None or self.is_reached:
            return 0.0
        limit = self.target.limit
        return abs(self.found - limit) / (limit or 1)


def _cpu(what: str, case: str, subject: str, against: str, limit: float) -> Target:
    return Target(
        what=f"server CPU per MB, {what}", case=case, figure="cpu_ms_per_mb",
        subject=subject, against=against, limit=limit,
    )  # fmt: skip


def _rate(what: str, case: str, limit: float = 1.0) -> Target:
    return Target(
        what=f"throughput, {what}", case=case, figure="mb_per_s",
        subject=OS, against=KAFKA, limit=limit, better="higher",
    )  # fmt: skip


def _time(what: str, case: str, figure: str, subject: str, against: str) -> Target:
    return Target(what=what, case=case, figure=figure, subject=subject, against=against, limit=1.0)


def _ours(what: str, case: str, figure: str) -> Target:
    return _time(what, case, figure, OS, KAFKA)


def _plain(
    what: str, case: str, figure: str, limit: float, unit: str, *, subject: str = OS
) -> Target:
    return Target(
        what=what, case=case, figure=figure, subject=subject, against=None, limit=limit, unit=unit
    )


_TRANSACTIONS = {
    "transactions-librdkafka": "librdkafka",
    "transactions-raw-1": "protocol 1",
    "transactions-raw-2": "protocol 2",
}

_NAMED_WORK = {
    "publish": "publish",
    "receive": "receive and commit the last one of each channel",
    "commit": "receive and commit each",
}


def _all() -> Iterator[Target]:
    yield from _cpu_of_kafka_clients()
    yield Target(
        what="CPU per request of one record", case="request-100b", figure="cpu_us_per_request",
        subject=OS, against=KAFKA, limit=0.5,
    )  # fmt: skip
    for subject, against, limit in ((OS, KAFKA, 1.5), (FSYNC, KAFKA_SYNC, 2.0)):
        yield Target(
            what="requests of one record per second", case="request-100b",
            figure="requests_per_s", subject=subject, against=against, limit=limit,
            better="higher",
        )  # fmt: skip
    for subject, against in ((OS, KAFKA), (FSYNC, KAFKA_SYNC)):
        for share in ("p50", "p99"):
            what = f"round trip of one record, {share}"
            yield _time(what, "round-trip-100b", f"{share}_ms", subject, against)
    what = "CPU of 1,000 access rules under requests of one record"
    yield _plain(what, "authorizer", "rules_cpu_percent", 3, " %")
    for verb in ("produce", "consume"):
        yield _cpu(f"{verb} 1 KB over TLS", f"tls-{verb}", OS, KAFKA, 1.0)
    for verb, noun in (("produce", "producer"), ("consume", "consumer")):
        for size, words in (("1k", "1 KB"), ("100b", "100 B")):
            yield _rate(f"librdkafka {verb} {words}", f"{verb}-{size}")
            limit = 1.2 if (verb, size) == ("consume", "100b") else 1.0
            yield _rate(f"Kafka's own {noun} tool {words}", f"{verb}-java-{size}", limit)
    for subject, against in ((OS, KAFKA), (FSYNC, KAFKA_SYNC)):
        what = "end-to-end latency at 1,000 records/s, p99"
        yield _time(what, "latency-1000", "p99_ms", subject, against)
    for name, words in _TRANSACTIONS.items():
        yield Target(
            what=f"transactions of one record per second, {words}", case=name,
            figure="transactions_per_s", subject=OS, against=KAFKA, limit=1.0, better="higher",
        )  # fmt: skip
    yield _ours("rebalance of 50 members, one joins", "rebalance-50", "join_ms")
    yield _ours("rebalance of 50 members, one leaves", "rebalance-50", "leave_ms")
    yield _ours("creation of 2,000 topics of 10 partitions", "many-topics", "create_s")
    yield _ours("metadata of 2,000 topics of 10 partitions", "many-topics", "metadata_ms")
    yield _ours("start with 2,000 topics of 10 partitions", "many-topics", "listed_s")
    what = "CPU of an idle fetch of 1,000 partitions in a session"
    yield _ours(what, "session-fetches", "session_cpu_us_per_fetch")
    yield _rate("cold consume 1 KB", "cold-consume-1k", 0.8)
    yield _plain("start to first answered Metadata", "start", "start_s", 0.3, " s")
    yield _plain("idle memory", "start", "idle_rss_mb", 80, " MB")
    what = "a server in a test's process is ready"
    yield _plain(what, "server-in-process", "ready_ms", 50, " ms", subject=FSYNC)
    what = "disk use below 1.3 of what is alive, after deleting 90 % of 2 GiB"
    yield _plain(what, "space-2g", "idle_s", 60, " s")
    yield _plain("open a store of 10,000 managed ledgers", "many-ledgers", "store_open_s", 2, " s")
    yield _plain("memory of 100,000 ledgers", "many-ledgers", "rss_mb", 1074, " MB")
    what = "longest pause of the loop under batches whose records are looked at"
    yield _plain(what, "long-walks", "pause_ms", 5, " ms")
    what = "memory that 10,000 partitions leave that were used once"
    yield _plain(what, "idle-partitions", "left_mb", 20, " MB")
    yield from _workers()
    yield from _compaction_and_tables()
    yield from _tiers()
    yield from _cluster()
    yield from _native()
    yield from _spark()
    yield _plain("CPU of 1,000 idle connections", "idle-connections", "cpu_percent", 1.0, " %")
    yield _plain("CPU of 100,000 idle fetches", "idle-fetches", "cpu_percent", 1.0, " %")


def _cpu_of_kafka_clients() -> Iterator[Target]:
    yield _cpu("produce 1 KB", "produce-1k", OS, KAFKA, 0.8)
    yield _cpu("produce 100 B", "produce-100b", OS, KAFKA, 0.6)
    yield _cpu("produce 1 KB", "produce-1k", FSYNC, KAFKA, 1.0)
    yield _cpu("produce 100 B", "produce-100b", FSYNC, KAFKA, 0.8)
    yield _cpu("produce 1 KB", "produce-1k", FSYNC, KAFKA_SYNC, 0.5)
    yield _cpu("produce 100 B", "produce-100b", FSYNC, KAFKA_SYNC, 0.5)
    yield _cpu("consume 1 KB from memory", "consume-tail-1k", OS, KAFKA, 1.1)
    yield _cpu("consume 100 B from memory", "consume-tail-100b", OS, KAFKA, 0.5)
    yield _cpu("consume 1 KB behind the cache", "consume-1k", OS, KAFKA, 1.1)
    yield _cpu("consume 100 B behind the cache", "consume-100b", OS, KAFKA, 0.5)
    what = "consume 100 B, Kafka's own consumer tool"
    yield _cpu(what, "consume-java-100b", OS, KAFKA, 0.6)
    yield _cpu("cold consume 1 KB", "cold-consume-1k", OS, KAFKA, 0.4)


def _workers() -> Iterator[Target]:
    yield _cpu("produce into 8 partitions, two workers / one process", "workers", WORKERS, OS, 1.15)
    yield Target(
        what="the same, throughput without the clients' CPU", case="workers",
        figure="server_mb_per_s", subject=WORKERS, against=OS, limit=1.6, better="higher",
    )  # fmt: skip
    what = "a killed worker takes appends again, the longest of six"
    yield _plain(what, "worker-restart", "append_s_max", 1.0, " s", subject=WORKERS)


def _compaction_and_tables() -> Iterator[Target]:
    for size, words in (("100b", "100 B"), ("1k", "1 KB")):
        for percent in (10, 90):
            what = f"compaction of {words}, {percent} % duplicates"
            yield _rate(what, f"compaction-{size}-{percent}", 0.5)
    for subject in (OS, FSYNC):
        for who, whose in (("produce", "producer"), ("fetch", "consumer")):
            name = "beside-compaction"
            for when, words in (("cleaner", "reads"), ("cleaner_copying", "copies")):
                what = f"p99 of a {whose} while the log cleaner {words} 1 GiB / stopped"
                yield _plain(what, name, f"{who}_p99_{when}_ratio", 1.5, "", subject=subject)
            what = f"p99 of a {whose} during a compaction of 1 GiB at full speed / before"
            yield _plain(what, name, f"{who}_p99_ratio", 1.5, "", subject=subject)
    yield Target(
        what="a table view loads 1,000,000 keys", case="table-view", figure="records_per_s",
        subject=EMBEDDED, against=None, limit=300_000, better="higher", unit=" records/s",
    )  # fmt: skip
    what = "refresh of an idle table view, p99"
    yield _plain(what, "table-view", "refresh_p99_ms", 5, " ms", subject=EMBEDDED)


def _tiers() -> Iterator[Target]:
    yield Target(
        what="offload to a folder", case="tier-file", figure="offload_mb_per_s", subject=OS,
        against=None, limit=100, better="higher", unit=" MB/s",
    )  # fmt: skip
    what = "CPU of an offload to a folder"
    yield _plain(what, "tier-file", "offload_cpu_ms_per_mb", 3, " ms/MB")
    yield Target(
        what="cold read in order, an S3 server on the machine / the primary", case="tier-s3",
        figure="tier_share", subject=OS, against=None, limit=0.5, better="higher",
    )  # fmt: skip
    for subject in (OS, FSYNC):
        for beside in ("slow", "hanging"):
            for work, words in (("append", "appends"), ("primary_read", "reads of the primary")):
                what = f"p99 of {words} beside reads of a {beside} tier / alone"
                figure = f"{work}_{beside}_ratio"
                yield _plain(what, "slow-tier", figure, 1.5, "", subject=subject)


def _cluster() -> Iterator[Target]:
    """Give those of the engine without a disk, beside the engine on disk with fsync."""
    what = "CPU of appends of 16 KiB without a disk / on disk"
    yield _plain(what, "cluster-engine", "cpu_ratio", 1.3, "", subject=FSYNC)
    yield Target(
        what="appends of 16 KiB without a disk", case="cluster-engine", figure="mb_per_s",
        subject=FSYNC, against=None, limit=60, better="higher", unit=" MB/s",
    )  # fmt: skip
    yield from _cluster_broker()
    yield from _nodes()


def _cluster_broker() -> Iterator[Target]:
    """Give those of a whole server without a disk."""
    name = "cluster-broker"
    yield _cpu("produce 16 KiB without a disk / with fsync", name, CLUSTER, FSYNC, 1.3)
    yield Target(
        what="produce 16 KiB without a disk", case=name, figure="mb_per_s", subject=CLUSTER,
        against=None, limit=60, better="higher", unit=" MB/s",
    )  # fmt: skip
    for what, p50, p99 in (("inline", 5.0, 30.0), ("object", 130.0, 350.0)):
        for share, limit in (("p50", p50), ("p99", p99)):
            words = f"acknowledgement of a record without a disk, {what}, {share}"
            yield _plain(words, name, f"{share}_ms_{what}", limit, " ms", subject=CLUSTER)
    for what, figure, limit, unit in (
        ("CPU of the database per commit", "sql_cpu_ms_per_commit", 0.5, " ms"),
        ("log of the database per commit", "sql_wal_kb_per_commit", 4.0, " KB"),
        ("PUTs per GiB of records", "puts_per_gib", 250.0, ""),
    ):
        yield _plain(what, name, figure, limit, unit, subject=CLUSTER)
    what = "a server without a disk starts with 100,000 partitions"
    yield _plain(what, "cluster-start", "answer_s", 3, " s", subject=CLUSTER)


def _nodes() -> Iterator[Target]:
    """Give those of three servers that divide nodes."""
    yield Target(
        what="transactions of one record per second, 3 servers / one with fsync", case="nodes",
        figure="transactions_per_s", subject=NODES, against=FSYNC, limit=0.5, better="higher",
    )  # fmt: skip
    yield Target(
        what="partitions that move when a server stops", case="nodes",
        figure="moved_partitions_per_s", subject=NODES, against=None, limit=200, better="higher",
        unit=" /s",
    )  # fmt: skip
    for what, figure, limit, unit in (
        ("longest wait of a producer while a server stops", "drain_stall_ms", 300, " ms"),
        ("a server joins: all have their share", "settled_s", 30, " s"),
        ("a server is killed: longest wait of a producer", "kill_stall_s", 10, " s"),
        ("errors at that producer", "errors", 0, ""),
    ):
        yield _plain(what, "nodes", figure, limit, unit, subject=NODES)


def _spark() -> Iterator[Target]:
    """Give those of Spark: its kafka source on both servers, and ours without a server."""
    queries = {"count": "count", "json": "sum over JSON", "parquet": "write to Parquet"}
    pairs = ((SPARK_SOURCE, SPARK_SOURCE_KAFKA, 1.0), (SPARK_DIRECT, SPARK_SOURCE, 1.5))
    for case, words in (("spark-1k", "1 KB"), ("spark-1k-lz4", "1 KB lz4")):
        for query, what in queries.items():
            for subject, against, limit in pairs:
                yield Target(
                    what=f"Spark, {what}, {words}, MB/s", case=case, figure=f"{query}_mb_per_s",
                    subject=subject, against=against, limit=limit, better="higher",
                )  # fmt: skip


def _native() -> Iterator[Target]:
    """Give those of the native client, beside a Kafka client in Python that does the same."""
    works = (
        ("produce", "produce-1k"),
        ("receive", "consume-1k"),
        ("shared receive", "shared-1-1k"),
    )
    for work, case in works:
        for subject, place, rate in ((EMBEDDED, "embedded", 2e5), (REMOTE, "remote", 1e5)):
            yield Target(
                what=f"native {work}, 1 KB, {place}", case=f"native-{case}",
                figure="records_per_s", subject=subject, against=None, limit=rate,
                better="higher", unit=" records/s",
            )  # fmt: skip
            yield Target(
                what=f"native {work}, 1 KB, CPU of client and server", case=f"native-{case}",
                figure="cpu_all_ms_per_mb", subject=subject, against=GROUP_ASYNCIO, limit=1.2,
            )  # fmt: skip
    yield from _named_topics()


def _named_topics() -> Iterator[Target]:
    """Give those of named topics, beside a producer and a subscription of the same client."""
    pairs = ((NAMED, EMBEDDED), (NAMED_REMOTE, REMOTE))
    for work in ("publish", "receive", "commit"):
        for channels, words in ((1, "1 channel"), (17, "17 channels")):
            for subject, against in pairs:
                case = f"named-{work}-{channels}"
                yield Target(
                    what=f"{_NAMED_WORK[work]}, {words}, records/s", case=case,
                    figure="records_per_s", subject=subject, against=against, limit=0.8,
                    better="higher",
                )  # fmt: skip
                yield Target(
                    what=f"{_NAMED_WORK[work]}, {words}, CPU", case=case,
                    figure="cpu_all_ms_per_mb", subject=subject, against=against, limit=1.25,
                )  # fmt: skip


TARGETS = tuple(_all())


def judge(results: Results) -> list[Verdict]:
    """Hold a run against every target."""
    verdicts = []
    for target in TARGETS:
        if target.against is None:
            found = results.median(target.case, target.subject, target.figure)
        else:
            found = results.ratio(target.case, target.figure, target.subject, target.against)
        verdicts.append(Verdict(target=target, found=found))
    return verdicts
