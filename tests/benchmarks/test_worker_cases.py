"""What is left of a time when the clients' share of the cores is taken off."""

import pytest

from benchmarks.cases import choose
from benchmarks.worker_cases import rates

(CASE,) = choose(["workers"])
MEGABYTES = CASE.payload_bytes / 1e6


def client(seconds: float, cpu_s: float) -> dict[str, float]:
    return {"seconds": seconds, "client_cpu_s": cpu_s}


@pytest.mark.parametrize(
    ("clients", "server_cpu_s", "processes", "seconds"),
    [
        # Both cores are busy with two workers and two clients.
        ([client(10, 2), client(9, 2)], 16, 2, 8),
        # One process is the limit, and the clients run beside it.
        ([client(10, 1), client(10, 1)], 10, 1, 10),
        # The server waits for its disk.
        ([client(10, 0), client(10, 0)], 4, 2, 10),
    ],
)
def test_throughput_without_clients(
    clients: list[dict[str, float]], server_cpu_s: float, processes: int, seconds: float
) -> None:
    found = rates(CASE, clients, server_cpu_s=server_cpu_s, processes=processes, cores=2)
    assert MEGABYTES / 10 == pytest.approx(found["mb_per_s"])
    assert MEGABYTES / seconds == pytest.approx(found["server_mb_per_s"])
    assert server_cpu_s * 1e3 / MEGABYTES == pytest.approx(found["cpu_ms_per_mb"])
