"""Ledger cases: programs that measure in their own process, without another server or Kafka."""

from __future__ import annotations

from benchmarks import clients
from benchmarks.cases import OS, Case
from benchmarks.clients import Figures
from benchmarks.testbed import Testbed


def operations(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Add entries, read them from memory and from the files."""
    words = ("--entry-bytes", str(case.record_bytes), "--entries", str(case.records))
    return _measure("ledger_load", subject, testbed, *words)


def many_ledgers(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Open a store with many managed ledgers."""
    words = ("--managed-ledgers", str(case.partitions), "--ledgers", str(case.repeats))
    return _measure("many_ledgers", subject, testbed, *words)


def cursor_holes(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Acknowledge every second entry of a log, and recover that."""
    words = ("--holes", str(case.records), "--ranges-max", str(case.ranges_max))
    return _measure("cursor_holes", subject, testbed, *words)


def server_in_process(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Start a whole server in a thread, as the fixture of tests does."""
    return _measure("server_in_process", subject, testbed)


def long_walks(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Send batches whose records must all be checked to a server in that process."""
    return _measure("long_walks", subject, testbed, "--records", str(case.records))


def tier(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Offload ledgers to a folder or to an S3 server, and read them from either copy."""
    words = ("--entry-bytes", str(case.record_bytes), "--entries", str(case.records))
    kind = ("--tier", case.kind.removeprefix("tier-"))
    return _measure("tier_load", subject, testbed, *kind, *words)


def slow_tier(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Append and read beside readers of a tier that is slow or hangs."""
    words = ("--entry-bytes", str(case.record_bytes), "--operations", str(case.records))
    return _measure("slow_tier_load", subject, testbed, *words)


def cluster_engine(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Append to a store without a disk, and to one on disk."""
    words = ("--entry-bytes", str(case.record_bytes), "--entries", str(case.records))
    return _measure("cluster_engine_load", subject, testbed, *words)


def _measure(name: str, subject: str, testbed: Testbed, *words: str) -> Figures:
    durability = "os" if subject == OS else "fsync"
    place = ("--durability", durability, "--data", str(testbed.folder))
    return clients.own_program(name, *place, *words)
