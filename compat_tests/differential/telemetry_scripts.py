"""Metrics of clients: which may request and push, and the answers. Kafka answers without being
asked to take them by a plug-in, too; what is in a push it does not look at then.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from compat_tests.differential.config_scripts import METRICS, SET, changed, replaced
from compat_tests.differential.scripts import script
from compat_tests.differential.side import Side
from compat_tests.settings import dotted
from kledger.batches.compression import Codec
from kledger.gateway.wire.messages.k18_api_versions import ApiVersionsRequest
from kledger.gateway.wire.messages.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
)
from kledger.gateway.wire.messages.k72_push_telemetry import PushTelemetryRequest

NAME, PREFIX, SOFTWARE = "telemetry", "org.apache.kafka.", "telemetry-probe"
BYTES_MAX: Final = 1 << 20
CASES: Final[dict[str, dict[str, Any]]] = {
    "nothing": {},
    "zero": {"client_instance_id": UUID(int=0)},
    "one": {"client_instance_id": UUID(int=1)},
    "another subscription": {"subscription_id": 5},
    **{f"codec {codec}": {"compression_type": codec} for codec in (-1, *Codec, 5)},
    "too much": {"metrics": b"x" * (BYTES_MAX + 1)},
    "as much as there may be": {"metrics": b"x" * BYTES_MAX},
    "no OTLP": {"metrics": b"\xff"},
    "all wrong": {"subscription_id": 5, "compression_type": 9, "metrics": b"x" * (BYTES_MAX + 1)},
    "wrong codec, too much": {"compression_type": 9, "metrics": b"x" * (BYTES_MAX + 1)},
    "terminating": {"terminating": True},
    "terminating, too much": {"terminating": True, "metrics": b"x" * (BYTES_MAX + 1)},
}


def _get(number: int) -> GetTelemetrySubscriptionsRequest:
    return GetTelemetrySubscriptionsRequest(client_instance_id=UUID(int=number))


def _push(number: int, subscription_id: int, **fields: Any) -> PushTelemetryRequest:
    usual: dict[str, Any] = {
        "client_instance_id": UUID(int=number),
        "subscription_id": subscription_id,
    }
    return PushTelemetryRequest(**usual | fields)


def _want(side: Side, number: int, **settings: str) -> int:
    """Subscribe, wait until the server applies it, and return its subscription id."""
    changes = [(key, SET, value) for key, value in dotted(settings).items()]
    side.quietly(changed(METRICS, NAME, *changes), 1)
    wanted, interval_ms = settings["metrics"].split(","), int(settings["interval_ms"])
    answer = side.ask_until(
        f"{settings}",
        _get(number),
        0,
        lambda answer: (answer.requested_metrics, answer.push_interval_ms) == (wanted, interval_ms),
    )
    found: int = answer.subscription_id
    return found


@script
def clients_ask_what_to_push(side: Side) -> None:
    side.ask("nothing is wanted", _get(100), 0)
    side.ask("again", _get(100), 0)
    side.ask("reserved", _get(1), 0)
    hello = ApiVersionsRequest(client_software_name=SOFTWARE, client_software_version="1.0")
    side.quietly(hello, 3)
    match = f"client_software_name={SOFTWARE},client_id=diff.*,client_source_port=[0-9]+"
    _want(side, 101, metrics=PREFIX, interval_ms="60000", match=match)
    side.ask("changed for all", _get(100), 0)
    side.ask("at once", _get(101), 0)
    another = side.another()
    another.ask("another client", _get(102), 0)
    another.ask("of the same id", _get(101), 0)
    _want(side, 101, metrics="*", interval_ms="60000")
    side.quietly(changed(METRICS, NAME, ("interval.ms", SET, "3600000")), 1)
    side.ask_until("longest", _get(101), 0, lambda answer: answer.push_interval_ms == 300_000)
    side.quietly(replaced(METRICS, NAME, {}), 2)
    side.ask_until("none", _get(101), 0, lambda answer: not answer.requested_metrics)


@script
def clients_push(side: Side) -> None:
    _want(side, 200, metrics=PREFIX, interval_ms="60000")
    for number, (label, fields) in enumerate(CASES.items(), 201):
        answer = side.quietly(_get(number), 0)
        side.ask(label, _push(number, answer.subscription_id, **fields), 0)
        side.ask(f"{label}, then a push", _push(number, answer.subscription_id), 0)
        last = _push(number, answer.subscription_id, terminating=True)
        side.ask(f"{label}, then the last push", last, 0)
        side.ask(f"{label}, then the last push again", last, 0)
        side.ask(f"{label}, then a question", _get(number), 0)
    side.ask("who never asked", _push(300, 5), 0)
    answer = side.ask("who never asked, then asks", _get(300), 0)
    side.ask("who never asked, then pushes", _push(300, answer.subscription_id), 0)
    side.quietly(replaced(METRICS, NAME, {}), 2)
    side.ask_until("nothing is wanted", _get(200), 0, lambda answer: not answer.requested_metrics)
