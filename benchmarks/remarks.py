"""Remarks: why a target is missed, in words, for the page that a run writes.

Rule: one remark for each case and figure that is known to miss; it is printed only while it misses.
"""

from __future__ import annotations

from benchmarks.cases import (
    CLUSTER,
    EMBEDDED,
    FSYNC,
    NAMED,
    NAMED_REMOTE,
    NODES,
    OS,
    REMOTE,
    SPARK_DIRECT,
    SPARK_SOURCE,
)

_SYNC = (
    "A sync costs the kernel about 0.1 ms of CPU, whatever its size, and as much again for"
    " switching between threads. With five batches of 64 KiB in flight a sync covers little more"
    " than one batch, so there are a dozen syncs for each MB; decision 0002 lists what was tried"
    " against it"
)
_BEHIND = (
    "Records that are no longer in the 64 MiB cache are copied from the page cache into memory,"
    " and their checksums are verified; Apache Kafka passes the page cache to the socket with"
    " sendfile. Decision 0048 lists the cost of each part"
)
_RECEIVED = (
    "Each received message is an object with an id of its own, made in Python; aiokafka's records"
    " come from a decoder in C. Remote, gRPC and protobuf copy each chunk of messages once more on"
    " both sides"
)
_WAKE = (
    "With one batch for each iteration of the event loop, the fixed costs of an iteration are not"
    " shared; in the profile below no other function stands out behind sockets and the write."
    " Decision 0050 says what compiled modules would change"
)

_SPREAD = "The difference is within the variation between rounds: compare the ranges below"
_IMPORTS = (
    "Nearly all of it is the import of some 370 modules, a third of it in the gateway, whose"
    " coordinators load their stored state before the first request"
)

_ARENAS = (
    "The objects of closed partitions are freed, but CPython returns an arena of 1 MiB only when"
    " it is empty, and single live objects keep some 30 of them. New objects use the free memory"
    " in these"
)

_PRIORITY = (
    "The compacting process has a lower priority than everything else, so on a busy machine it"
    " waits, and Apache Kafka's cleaner does not. Every byte is read and copied to that process"
    " twice, and what stays is copied back: with records of 1 KB that is more than the process"
    " itself takes (decision 0024)"
)
_BESIDE = (
    "At full speed a compaction keeps both cores busy, and the client waits for one as well as the"
    " server; a trace found what could be spared (decision 0024). It has this speed when a user"
    " asks for it, when nobody appends, and when a partition grows fast"
)
_PUBLISH = (
    "A publish is a send that also counts for flow control and flush, chooses its channel, and"
    " returns a channel and a position instead of the id"
)
_ELEMENTS = (
    "A subscriber decodes fetched batches at once, and makes an element of each message; a"
    " consumer decodes a batch when it is received, and returns the decoded messages themselves"
)
_COMMITS = (
    "Each commit is decided separately, from an offset and what was read, and has a result; the"
    " acknowledgements of one batch become one, with a bit for each record"
)
_SPARK = (
    "Spark waits more, not longer for the processor: a count leaves 3.3 s of two cores idle and"
    " Apache Kafka's 2.4, though all processes together take less CPU. The source sends two"
    " ListOffsets behind every 500 records and fetches only when it has none left, and a response"
    " begins when its last entry is read and checked (decision 0048)"
)
_PARQUET = (
    "Spark writes Parquet for most of the time, whatever the source; reading and decoding take less"
    " than a tenth of it"
)
_WHOLE_NODES = (
    "A node moves with all its partitions (decision 0047): it ends as a broker does, and another"
    " server loads its rows and opens its partitions, one node after the other. A record waits for"
    " that, and for its producer to learn the new address"
)
_INDEX_ROWS = (
    "A commit of 7.7 MB has 30 rows of the offset index, one for 256 KiB of a partition, and they"
    " are most of it. A megabyte of records costs the database 1.5 KB and 0.11 ms"
)
_GROUPS = (
    "Messages leave in groups of five batches, and a group waits until the one before is stored and"
    " synced; the rest is the cost of a future, a tuple and an id for each message"
)

REMARKS: dict[tuple[str, str, str], str] = {
    ("produce-100b", "cpu_ms_per_mb", OS): _WAKE,
    ("produce-1k", "cpu_ms_per_mb", FSYNC): _SYNC,
    ("produce-100b", "cpu_ms_per_mb", FSYNC): _SYNC,
    ("consume-1k", "cpu_ms_per_mb", OS): _BEHIND,
    ("consume-100b", "cpu_ms_per_mb", OS): _BEHIND,
    ("consume-1k", "mb_per_s", OS): _BEHIND,
    ("consume-100b", "mb_per_s", OS): _BEHIND,
    ("consume-java-100b", "mb_per_s", OS): _BEHIND,
    ("consume-java-100b", "cpu_ms_per_mb", OS): _BEHIND,
    ("round-trip-100b", "p50_ms", OS): _WAKE,
    ("produce-100b", "mb_per_s", OS): _SPREAD,
    ("request-100b", "cpu_us_per_request", OS): _WAKE,
    ("request-100b", "requests_per_s", OS): _WAKE,
    ("produce-1k", "cpu_ms_per_mb", OS): _SPREAD,
    ("produce-1k", "mb_per_s", OS): _SPREAD,
    ("start", "start_s", OS): _IMPORTS,
    ("idle-partitions", "left_mb", OS): _ARENAS,
    ("round-trip-100b", "p99_ms", OS): _SPREAD,
    ("produce-java-1k", "mb_per_s", OS): _SPREAD,
    ("produce-java-100b", "mb_per_s", OS): _SPREAD,
    **{
        (f"compaction-{size}-{percent}", "mb_per_s", OS): _PRIORITY
        for size in ("100b", "1k")
        for percent in (10, 90)
    },
    **{
        ("beside-compaction", f"{who}_p99_ratio", subject): _BESIDE
        for who in ("produce", "fetch")
        for subject in (OS, FSYNC)
    },
    **{
        (case, f"{query}_mb_per_s", SPARK_SOURCE): _SPARK
        for case in ("spark-1k", "spark-1k-lz4")
        for query in ("count", "json", "parquet")
    },
    **{(case, "parquet_mb_per_s", SPARK_DIRECT): _PARQUET for case in ("spark-1k", "spark-1k-lz4")},
    **{
        (case, figure, subject): _RECEIVED
        for case in ("native-consume-1k", "native-shared-1-1k")
        for figure, subject in (("records_per_s", EMBEDDED), ("cpu_all_ms_per_mb", REMOTE))
    },
    **{
        ("nodes", figure, NODES): _WHOLE_NODES
        for figure in ("moved_partitions_per_s", "drain_stall_ms", "kill_stall_s")
    },
    **{
        ("cluster-broker", figure, CLUSTER): _INDEX_ROWS
        for figure in ("sql_cpu_ms_per_commit", "sql_wal_kb_per_commit")
    },
    **{("native-produce-1k", "records_per_s", subject): _GROUPS for subject in (EMBEDDED, REMOTE)},
    **{
        (f"named-{work}-{channels}", figure, subject): words
        for work, why in (("publish", _PUBLISH), ("receive", _ELEMENTS), ("commit", _COMMITS))
        for channels in (1, 17)
        for subject in (NAMED, NAMED_REMOTE)
        for figure, words in (("cpu_all_ms_per_mb", why), ("records_per_s", f"{why}. {_SPREAD}"))
    },
}
"""(case, figure, subject) -> why."""
