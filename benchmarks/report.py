"""Report: a run as a page.

Rule: pure; results in, Markdown out. Figures are medians, with the range of the rounds beside them.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from benchmarks.cases import Case
from benchmarks.remarks import REMARKS
from benchmarks.results import Results
from benchmarks.targets import Verdict, judge

_CLIENTS = {"produce": "producer's", "fetch": "consumer's"}
_LOG_CLEANER = {"cleaner": "while the log cleaner reads", "cleaner_copying": "while it copies"}
_BESIDE_TIER = {
    "append": "append", "tail_read": "read of it", "primary_read": "read from the files",
}  # fmt: skip
_UNITS = {
    "mb_per_s": "MB/s", "records_per_s": "records/s", "cpu_ms_per_mb": "server CPU ms/MB (= s/GB)",
    "cpu_all_ms_per_mb": "CPU of client and server ms/MB",
    "requests_per_s": "requests/s", "cpu_us_per_request": "server CPU µs/request",
    "cpu_us_per_record": "server CPU µs/record", "p50_ms": "p50 ms", "p99_ms": "p99 ms",
    "p999_ms": "p99.9 ms", "start_s": "start s", "idle_rss_mb": "idle memory MB",
    "rss_mb": "memory MB", "rss_loaded_mb": "memory after load MB", "answer_s": "first answer s",
    "answer_cpu_s": "server CPU until then s", "stop_s": "stopped with all open s",
    "ready_s": "log readable s", "cpu_percent": "CPU % of a core",
    "cpu_percent_without": "CPU % without them", "kb_each": "memory KB each",
    "parking_us_per_partition": "CPU µs to park a partition",
    "session_cpu_us_per_fetch": "server CPU µs/fetch in a session",
    "cpu_us_per_fetch": "server CPU µs/fetch that names all",
    "transactions_per_s": "transactions/s",
    "cpu_us_per_transaction": "server CPU µs/transaction",
    "server_mb_per_s": "MB/s without the clients' CPU", "client_cpu_ms_per_mb": "client CPU ms/MB",
    "append_s": "takes appends again s", "append_s_max": "the longest s",
    "restart_cpu_s": "CPU of the worker until then s",
    "join_ms": "one more joins ms", "leave_ms": "one leaves ms",
    "client_cpu_ms": "of which CPU of the members ms",
    "cpu_ms_per_rebalance": "server CPU ms/rebalance",
    "create_s": "all created and listed s", "create_cpu_s": "server CPU for it s",
    "metadata_ms": "all listed again ms", "metadata_cpu_ms": "server CPU for it ms",
    "listed_s": "all listed after a start s",
    "start_rss_mb": "memory after the start MB", "created_rss_mb": "memory, all created MB",
    "touch_s": "one record into each s", "touched_rss_mb": "memory, all open MB",
    "closed_rss_mb": "memory, all closed MB", "left_mb": "of which above all created MB",
    "closed_again_rss_mb": "memory, all opened and closed again MB",
    "connect_s": "all connections answered s", "join_s": "all groups joined s",
    "subscribe_s": "all subscriptions made s",
    "idle_s": "seconds, server idle", "busy_s": "seconds, beside a producer",
    "disk_mb_full": "disk before MB", "disk_mb_left": "disk after MB",
    "p50_ms_without": "producer's p50 ms before", "p99_ms_without": "producer's p99 ms before",
    "p50_ms_beside": "producer's p50 ms meanwhile", "p99_ms_beside": "producer's p99 ms meanwhile",
    "store_open_s": "store open s", "all_open_s": "all managed ledgers open s",
    "add_us": "add µs", "add_cpu_us": "add CPU µs", "tail_read_us": "read from memory µs",
    "tail_read_cpu_us": "read from memory CPU µs", "cold_read_us": "read from the files µs",
    "cold_read_cpu_us": "read from the files CPU µs",
    "store_rss_mb": "memory of the open store MB", "ledgers": "ledgers",
    "holes": "holes", "holes_mb": "memory of the holes MB",
    "ack_us": "acknowledged in calls of 1,000, each entry µs",
    "ack_cpu_us": "acknowledged in calls of 1,000, each entry CPU µs",
    "single_ack_ms": "acknowledged alone, with all holes there, ms",
    "cursor_open_s": "managed ledger open after a kill s",
    "first_read_s": "first 100 unacknowledged entries read s", "holes_kept": "holes found after it",
    "redelivered": "acknowledged entries redelivered",
    "cpu_us_per_key": "CPU µs of this process/key", "bytes_per_key": "memory B/key",
    "refresh_p50_ms": "refresh p50 ms", "refresh_p99_ms": "refresh p99 ms",
    "refresh_behind_p50_ms": "refresh behind a write p50 ms",
    "cpu_us_with_rules": "CPU µs/request with rules", "rules_cpu_percent": "CPU of rules %",
    "import_ms": "imported ms", "first_ready_ms": "first one ready ms", "ready_ms": "ready ms",
    "left_ms": "left ms",
    **{
        f"{work}_{figure}": f"{words}, {unit}"
        for work, words in (
            ("offload", "offload"), ("primary", "read from the primary"),
            ("tier", "read from the tier"),
        )
        for figure, unit in (("mb_per_s", "MB/s"), ("cpu_ms_per_mb", "CPU ms/MB"))
    },
    "tier_share": "rate of the tier / of the primary",
    "random_p50_ms": "random entry from the tier, p50 ms",
    "random_p99_ms": "random entry from the tier, p99 ms",
    **{
        f"{work}_{share}_ms_{beside}": f"{words} {share} ms, {then}"
        for work, words in _BESIDE_TIER.items()
        for share in ("p50", "p99")
        for beside, then in (
            ("alone", "alone"), ("slow", "slow tier"), ("hanging", "hanging tier"),
        )
    },
    **{
        f"{work}_{beside}_ratio": f"{words} p99, {beside} tier / alone"
        for work, words in _BESIDE_TIER.items()
        for beside in ("slow", "hanging")
    },
    **{
        f"{who}_{share}_ms_{when}": f"{whose} {words} ms {then}"
        for when, then in (
            ("without", "before"), ("busy", "beside a busy process"), ("beside", "meanwhile"),
            ("stopped", "while the log cleaner is stopped"), *_LOG_CLEANER.items(),
        )
        for who, whose in _CLIENTS.items()
        for share, words in (
            ("p50", "p50"), ("p99", "p99"), ("p999", "p99.9"),
            ("p99_second", "p99 of the median second,"),
        )
    },
    **{
        f"{query}_{figure}": f"{words}, {unit}"
        for query, words in (
            ("count", "count"), ("json", "sum over a JSON field"), ("parquet", "write to Parquet"),
        )
        for figure, unit in (
            ("mb_per_s", "MB/s"), ("cpu_ms_per_mb", "server CPU ms/MB"),
        )
    },
    "produce_p99_ratio": "producer's p99, meanwhile / before",
    "fetch_p99_ratio": "consumer's p99, meanwhile / before",
    **{
        f"{who}_p99_busy_ratio": f"{whose} p99, beside a busy process / before"
        for who, whose in _CLIENTS.items()
    },
    **{
        f"{who}_p99_{when}_ratio": f"{whose} p99, {then} / while it is stopped"
        for who, whose in _CLIENTS.items()
        for when, then in _LOG_CLEANER.items()
    },
}  # fmt: skip
_NATIVE_WORK = {
    "native-produce": "sent one by one, without a task for each, at most 5,000 under way",
    "native-consume": "read and acknowledged 1,000 at a time",
    "native-shared": "a shared subscription, read up to 1,000 at a time and acknowledged in one"
    " call, each record for itself",
    "native-drain": "a backlog read, every tenth record acknowledged for itself, then all up to it",
}
_NAMED_WORK = {
    "named-publish": "sent one by one, 1,000 at a time, spread over the channels",
    "named-receive": "received up to 1,000 at a time, of which the last one of each channel is"
    " committed",
    "named-commit": "received up to 1,000 at a time, each of which is committed for itself",
}
_REQUESTS = "one record of {case.record_bytes} B a request, {case.in_flight} in flight"
_WORK = {
    "request": _REQUESTS,
    "round-trip": _REQUESTS,
    "latency": "librdkafka, 1,000 records/s, from produce() to the consumer",
    "authorizer": "one record of {case.record_bytes} B a request, {case.in_flight} in flight, on a"
    " server without an authorizer and on one with {case.records:,} rules, alternately",
    "workers": "{case.records:,} batches of {case.record_bytes:,} B into {case.partitions}"
    " partitions over two bare sockets, {case.in_flight} in flight on each",
    "worker-restart": "{case.repeats} workers killed in turn, with {case.records:,} records in"
    " {case.partitions} partitions; from the signal to the first append into each",
    **{
        f"tls-{verb}": f"Kafka's own tool {verb}s {{case.records:,}} records of"
        " {case.record_bytes:,} B in one partition over TLS 1.3, the same certificate on both"
        for verb in ("produce", "consume")
    },
    "restart": "killed with {gib:.1f} GiB of log",
    "start": "an empty folder; memory two seconds later",
    "server-in-process": "a server in a thread of a test's process, 50 one after the other",
    "idle-connections": "1,000 connections that asked once, then nothing",
    "idle-fetches": "{case.partitions:,} partitions parked in fetches of 1,000",
    "session-fetches": "{case.records:,} fetches of 1 ms over {case.partitions:,} empty partitions",
    "rebalance": "a classic group of {case.consumers} members that answer at once, one more comes"
    " and goes {case.repeats} times, no initial delay",
    "many-topics": "{case.partitions:,} partitions, or as many as there may be files, ten in each"
    " topic; all listed {case.repeats} times",
    "scale": "{case.partitions:,} partitions with a record each; for 100,000 of them 10,000"
    " connections, 2,000 groups of one member and 1,000 subscriptions of one consumer; a producer"
    " of 500 records/s before and beside them, and the CPU without it",
    "idle-partitions": "{case.partitions:,} partitions, one record into each, until all are closed,"
    " and once more",
    "space": "nine of ten topics of {gib:.1f} GiB deleted, seconds until the disk use is below 1.3"
    " of what is alive",
    "ledger": "the ledger without a server, {case.records:,} entries of {case.record_bytes:,} B,"
    " 16 adds under way, each figure for one entry",
    "many-ledgers": "{case.partitions:,} managed ledgers of {case.repeats} ledgers and an open one",
    "long-walks": "batches of {case.records:,} records out of time, plain, compressed, or one of as"
    " many headers: longest pause of the server's event loop meanwhile",
    **{
        f"tier-{kind}": f"the ledger with a tier in {words}: {{gib:.1f}} GiB of entries of"
        " {case.record_bytes:,} B offloaded, read in order from the primary and from the tier, each"
        " with an empty page cache, and single entries read from the tier at random"
        for kind, words in (("file", "a folder"), ("s3", "an S3 server on the same machine"))
    },
    "slow-tier": "the ledger with a tier: {case.records:,} times an append of"
    " {case.record_bytes:,} B, a read of it and a read of another from the files, alone, and beside"
    " 24 readers of ledgers that are only in a tier that answers after 2 s, or never",
    "cluster-engine": "the ledger without a disk, over an S3 server on the same machine and a model"
    " of the database, beside the ledger on disk: {case.records:,} entries of {case.record_bytes:,}"
    " B in 8 ledgers, 1,024 under way",
    "cluster-broker": "a server without a disk, over PostgreSQL without a standby and an S3 server"
    " on the same machine, beside one on disk: {case.records:,} batches of {case.record_bytes:,} B"
    " into {case.partitions} partitions over a bare socket, {case.in_flight} in flight; before"
    " that, round trips of single records of 1 KB (inline) and of 100 KB (object)",
    "cluster-start": "a server without a disk with {case.partitions:,} partitions of a record each"
    " is stopped, while all are open, and started, until it answers a Metadata request",
    "nodes": "three servers over the same: {case.records} transactions of one record each; then,"
    " with {case.partitions:,} partitions, a server is stopped, started and killed, beside a"
    " producer of 50 records/s into each of 12 partitions (stall: the longest wait for an"
    " acknowledgement)",
    "table-view": "{case.records:,} keys with values of {case.record_bytes:,} B on kledger fsync:"
    " loaded, then refreshed with nothing to read, and behind one new record",
    "spark": "Spark 4.0, `local[2]`, one session: a whole topic of {case.records:,} records of"
    " {case.record_bytes:,} B, {case.codec}, {case.partitions} partitions, in batches of 64 KiB;"
    " neither server syncs, and `direct` reads a tier in a folder",
    "compaction": "{case.records:,} records of {case.record_bytes:,} B, uncompressed, of which"
    " {case.duplicates_percent} % are replaced by newer ones; the CPU is that of all processes of"
    " the server",
    "beside-compaction": "500 records of 100 B a second, from the time at which each is due to the"
    " acknowledgement and to a consumer that waits, before and during the compaction of {gib:.1f}"
    " GiB in another topic, {case.duplicates_percent} % of it duplicates, beside a process that"
    " only computes, with the priority of a compaction, and during a compaction by the log cleaner,"
    " which nobody waits for: at its beginning, while it reads, and in its second pass, while it"
    " reads and writes, compared with times before, between and after these",
    "cursor-holes": "every second entry acknowledged with one cursor, {case.records:,} of them,"
    " `cursor_ranges_max` {case.ranges_max:,}",
}
_HEAD = """\
# Benchmarks

kledger beside Apache Kafka, alternately in one run, with the same client programs, on one machine;
loopback only. Only the server's process is measured. `make bench` writes this page, and `python -m
benchmarks --help` says how to run a part. kledger is the full product: idempotence, validation,
groups and metrics are on. `os` acknowledges when the record is in the page cache, which is what
Apache Kafka does by default; `fsync` when it is on the disk, which Apache Kafka does on topics with
`flush.messages=1`.
"""


def render(results: Results) -> str:
    """Write the page."""
    verdicts = judge(results)
    parts = [_HEAD, _conditions(results), _targets(verdicts), "![ratios](benchmarks.svg)\n"]
    parts += ["## Figures\n\nMedian, and the range of the rounds behind it.\n"]
    parts += [_case(results, name) for name in results.cases()]
    parts += [_failures(results), _profiles(results)]
    return "\n".join(part for part in parts if part)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


_EARLIER = """\
These are the conditions of the newest run. Each case below names the revision that it measured;
earlier ones ran on other machines, so figures compare within a case, and only ratios between cases.
"""


def _conditions(results: Results) -> str:
    rows = [[name, value] for name, value in results.conditions.items()]
    return "## Conditions\n\n" + _table(["what", "value"], rows) + "\n" + _EARLIER


def _targets(verdicts: list[Verdict]) -> str:
    """Hold every target against its figure; then say why the missed ones miss."""
    rows, remarks = [], []
    for verdict in verdicts:
        target = verdict.target
        pair = target.subject + (f" / {target.against}" if target.against else "")
        sign = "≤" if target.better == "lower" else "≥"
        rows.append([
            target.what, pair, f"{sign} {target.limit:g}{target.unit}",
            "-" if verdict.found is None else f"{verdict.found:.3g}{target.unit}",
            _outcome(verdict),
        ])  # fmt: skip
        remark = REMARKS.get((target.case, target.figure, target.subject))
        if verdict.found is not None and not verdict.is_reached and remark:
            remarks.append(f"- {target.what}, {pair}: {remark}")
    measured = [verdict for verdict in verdicts if verdict.found is not None]
    reached = sum(verdict.is_reached for verdict in measured)
    table = _table(["what", "servers", "target", "found", ""], rows)
    text = f"## Targets\n\n{reached} of {len(measured)} reached.\n\n{table}"
    return text + ("\nWhy they are missed:\n\n" + "\n".join(remarks) + "\n" if remarks else "")


def _outcome(verdict: Verdict) -> str:
    if verdict.found is None:
        return "not measured"
    return "reached" if verdict.is_reached else f"**missed by {verdict.missed_by:.0%}**"


def _case(results: Results, name: str) -> str:
    """Write the table of one case: a row for each figure, a column for each subject."""
    subjects = results.subjects(name)
    rows = []
    for figure in results.figures(name):
        cells = [_cell(results.rounds(name, subject, figure)) for subject in subjects]
        rows.append([_UNITS.get(figure, figure), *cells])
    about = results.about.get(name)
    revision = results.revision_of(name)
    if about and revision != results.revision:
        about += f"; on kledger {revision}"
    return f"### {name}\n\n" + (f"{about}.\n\n" if about else "") + _table(["", *subjects], rows)


def describe(case: Case) -> str:
    """Say in words what a case does."""
    words: list[str] = []
    if case.kind in {"produce", "consume", "cold-consume"}:
        words = [case.client, f"{case.records:,} records of {case.record_bytes:,} B", case.codec]
        words += [f"acks={case.acks}"] if case.kind == "produce" else []
        words += [_partitions(case)]
        words += [f"{case.repeats} times"] if case.repeats > 1 else []
    elif case.kind == "transactions":
        words = [case.client, f"{case.records:,} transactions of one record"]
        words += [f"protocol {case.protocol}"] if case.client == "raw" else []
        words += [_partitions(case)]
    elif case.kind.startswith("native-"):
        words = [f"{case.records:,} records of {case.record_bytes:,} B on kledger fsync"]
        words += [_NATIVE_WORK[case.kind]]
        words += [f"{case.consumers} consumers"] if case.consumers > 1 else []
        words += [_partitions(case)]
    elif case.kind.startswith("named-"):
        words = [f"{case.records:,} records of {case.record_bytes:,} B on kledger fsync"]
        words += [_NAMED_WORK[case.kind], _partitions(case).replace("partition", "channel")]
    else:
        words = [_WORK[case.kind].format(case=case, gib=case.payload_bytes / (1 << 30))]
    return ", ".join(words)


def _partitions(case: Case) -> str:
    return "1 partition" if case.partitions == 1 else f"{case.partitions} partitions"


def _cell(found: list[float]) -> str:
    if not found:
        return "-"
    middle = median(found)
    if len(found) == 1:
        return number(middle)
    return f"{number(middle)} ({number(min(found))} to {number(max(found))})"


def number(value: float) -> str:
    """Write a figure with three digits that say something."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _failures(results: Results) -> str:
    if not results.failures:
        return ""
    lines = [f"- {name}: {why.splitlines()[0][:200]}" for name, why in results.failures.items()]
    return "## Failed\n\n" + "\n".join(lines) + "\n"


def _profiles(results: Results) -> str:
    """Write where the server's time goes, load by load."""
    if not results.profiles:
        return ""
    parts = [
        (
            "## Where the time goes\n\nSamples of the running server (py-spy), by the innermost"
            " Python function; time in a native call counts for its caller;"
            " waiting does not count.\n"
        )
    ]
    for name, rows in results.profiles.items():
        table = _table(
            ["function", "share"], [[f"`{place}`", f"{share:.0%}"] for place, share in rows]
        )
        parts.append(f"### {name}\n\n{table}")
    return "\n".join(parts)
