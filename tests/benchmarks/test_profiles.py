"""Collapsed stacks, added up by the innermost function."""

from benchmarks.profiles import own_time

STACKS = """\
main (kledger/cli/serve.py:10);run (gateway/net/server.py:5);check (batches/header.py:80) 30
main (kledger/cli/serve.py:10);run (gateway/net/server.py:9);check (batches/header.py:91) 10
main (kledger/cli/serve.py:10);commit (ledger/engine/log_rocksdb.py:44) 60
not a stack
"""


def test_lines_of_a_function_are_added_up() -> None:
    assert own_time(STACKS) == [
        ("engine/log_rocksdb.py commit", 0.6),
        ("batches/header.py check", 0.4),
    ]


def test_waiting_threads_do_not_count() -> None:
    waiting = "main (a/b.py:1);_worker (concurrent/futures/thread.py:81) 900\n"
    assert own_time(STACKS + waiting) == own_time(STACKS)


def test_loop_is_named() -> None:
    assert own_time("Runner.run (asyncio/runners.py:118) 5") == [
        ("the event loop itself: sockets, polling", 1.0)
    ]


def test_nothing_sampled_is_nothing() -> None:
    assert own_time("") == []
