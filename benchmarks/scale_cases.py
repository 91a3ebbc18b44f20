"""Scale case: what a server is like that has very much of everything, of which little is used.

Rule: everything is there at the same time: partitions with a record each, connections, groups whose
members send heartbeats, subscriptions with waiting consumers. Beside it one producer sends at a
steady rate, as it did before on the empty server.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time

from benchmarks import clients
from benchmarks.cases import Case
from benchmarks.clients import ClientFailed, Figures
from benchmarks.exchange import exchanges
from benchmarks.many_topics_cases import create, touch, wait_until_listed
from benchmarks.own_server_cases import cpu_percent, wait, window
from benchmarks.testbed import Testbed, create_topic
from compat_tests.servers import KledgerServer

_MB = 1e6
_PARTITIONS = 100_000
_CONNECTIONS, _GROUPS, _SUBSCRIPTIONS = 10_000, 2_000, 1_000
"""For as many partitions; fewer of them have fewer of these."""
_PARTITIONS_PER_TOPIC = 100
_OTHER_FILES = 2_000
_TIMEOUT_S = 900.0
_SETTLE_S = 5.0
_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "max.connections.per.ip": str(2 * _CONNECTIONS),
}


def scale(case: Case, subject: str, testbed: Testbed) -> Figures:
    """Fill a server with all of it, measure what it costs while it lies there, start it again."""
    _allow_files(_CONNECTIONS + _OTHER_FILES)
    share = case.partitions / _PARTITIONS
    topics = case.partitions // _PARTITIONS_PER_TOPIC
    with testbed.own_server(subject, is_native=True, settings=_SETTINGS) as server:
        assert isinstance(server, KledgerServer)
        server.start_timeout_s = server.stop_timeout_s = _TIMEOUT_S
        server.start()
        figures: Figures = {"start_rss_mb": server.rss_bytes() / _MB}
        target = ["--bootstrap", server.bootstrap]
        paced = [*target, "--topic", create_topic(subject, server.bootstrap, 1)]
        with clients.running_program("paced_load", *paced) as load:
            wait(_SETTLE_S)
            windows = {"without": [window(case.seconds)]}
            with exchanges(server.bootstrap, 1) as (exchange,):
                figures["create_s"] = create(exchange, topics, partitions=_PARTITIONS_PER_TOPIC)
                figures["created_rss_mb"] = server.rss_bytes() / _MB
                figures["touch_s"] = touch(exchange, topics, partitions=_PARTITIONS_PER_TOPIC)
                figures["touched_rss_mb"] = server.rss_bytes() / _MB
            words = [*target, "--native", server.native_address]
            for what, count in (
                ("connections", _CONNECTIONS),
                ("groups", _GROUPS),
                ("subscriptions", _SUBSCRIPTIONS),
            ):
                words += [f"--{what}", str(max(round(count * share), 1))]
            with clients.running_program("scale_load", *words) as waiting:
                figures |= _first_line(waiting)
                wait(_SETTLE_S)
                windows["beside"] = [window(case.seconds)]
                found = clients.answer(load, json.dumps(windows), timeout_s=_TIMEOUT_S)
                figures["cpu_percent"] = cpu_percent(server, case.seconds)
                figures["rss_mb"] = server.rss_bytes() / _MB
        for when, each in found.items():
            figures[f"p50_ms_{when}"] = each["produce_p50_ms"]
            figures[f"p99_ms_{when}"] = each["produce_p99_ms"]
        server.stop()
        begun = time.monotonic()
        figures["answer_s"] = server.start()
        with exchanges(server.bootstrap, 1) as (exchange,):
            wait_until_listed(exchange, topics)
        return figures | {"listed_s": time.monotonic() - begun}


def _allow_files(count: int) -> None:
    """Let this process, and what it starts, have as many open files.

    Raises:
        ClientFailed: the system does not let it.
    """
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < count and os.geteuid():
        raise ClientFailed(f"{count} open files are needed, and {most} allowed")
    if allowed < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, max(most, count)))


def _first_line(program: subprocess.Popen[str]) -> Figures:
    assert program.stdout is not None
    line = program.stdout.readline()
    if not line:
        raise ClientFailed(f"status {program.wait()}: {program.args!r}")
    found: Figures = json.loads(line)
    return found
