"""Subscriptions to metrics of clients: what they are, what is refused as Apache Kafka does."""

import pytest

from kledger.gateway.api_errors import ApiError, code_and_message_of
from kledger.gateway.configs.client_metrics import (
    ClientMetricsSubscription,
    ClientMetricsSubscriptions,
)
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.ledger import LedgerStore
from kledger.ledger.testing import FaultyEngine
from kledger.topics import TopicsError
from kledger.topics.errors import TopicStorageFailed
from tests.gateway.running import running_gateway

INVALID_REQUEST, INVALID_CONFIG = ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG
EVERYTHING = {
    "interval.ms": " 1000 ",
    "metrics": "org.apache.kafka.producer., b ,b",
    "match": "client_id = app-[0-9]+ ,client_software_name=.*java",
}


async def alter(
    metrics: ClientMetricsSubscriptions,
    name: str,
    changes: dict[str, str | None],
    *,
    replace: bool = False,
) -> None:
    await metrics.alter(name, changes, replace=replace, validate_only=False)


def facts(one: ClientMetricsSubscription) -> tuple[tuple[str, ...], int, set[str]]:
    return one.metrics, one.interval_ms, set(one.matches)


async def test_a_subscription_is_what_was_set_and_defaults() -> None:
    async with running_gateway() as gateway:
        metrics = gateway.services.client_metrics
        await alter(metrics, "all", dict(EVERYTHING))
        await alter(metrics, "some", {"metrics": "*"})
        found = metrics.subscriptions()
        assert ["all", "some"] == [found[name].name for name in sorted(found)]
        assert (("*",), 300_000, set()) == facts(found["some"])
        chosen = {"client_id", "client_software_name"}
        assert (("org.apache.kafka.producer.", "b"), 1_000, chosen) == facts(found["all"])
        by_id = found["all"].matches["client_id"]
        assert by_id.fullmatch("app-7") is not None
        assert by_id.fullmatch("app-7x") is None
        assert {
            "interval.ms": "1000",
            "metrics": "org.apache.kafka.producer.,b",
            "match": "client_id = app-[0-9]+,client_software_name=.*java",
        } == metrics.of("all")


async def test_subscriptions_survive_a_restart_and_end_with_their_last_setting() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, engine=engine) as store:
        await alter(ClientMetricsSubscriptions(store), "s", dict(EVERYTHING))
    async with LedgerStore.open(None, engine=engine) as store:
        metrics = ClientMetricsSubscriptions(store)
        assert 1_000 == metrics.subscriptions()["s"].interval_ms
        await alter(metrics, "s", {"interval.ms": None})
        assert 300_000 == metrics.subscriptions()["s"].interval_ms
        await alter(metrics, "s", {"metrics": None, "match": None})
        assert {} == metrics.subscriptions()
    async with LedgerStore.open(None, engine=engine) as store:
        assert {} == ClientMetricsSubscriptions(store).subscriptions()


async def test_the_version_rises_with_each_change_and_with_nothing_else() -> None:
    engine = FaultyEngine(None)
    async with LedgerStore.open(None, engine=engine) as store:
        metrics = ClientMetricsSubscriptions(store)
        versions = [metrics.version]
        for name, changes in (("a", {"metrics": "x"}), ("b", {"metrics": "x"}), ("a", {})):
            await alter(metrics, name, dict(changes), replace=True)
            versions.append(metrics.version)
        assert versions == sorted(set(versions))
        await metrics.alter("b", {"metrics": "y"}, replace=False, validate_only=True)
        engine.fail_next("commit")
        with pytest.raises(TopicStorageFailed):
            await alter(metrics, "b", {"metrics": "y"})
        assert (versions[-1], ("x",)) == (metrics.version, metrics.subscriptions()["b"].metrics)


@pytest.mark.parametrize(
    ("setting", "value", "code"),
    [
        ("interval.ms", "99", INVALID_REQUEST),
        ("interval.ms", "100", None),
        ("interval.ms", "3600000", None),
        ("interval.ms", "3600001", INVALID_REQUEST),
        ("interval.ms", "-1", INVALID_REQUEST),
        ("interval.ms", "soon", INVALID_CONFIG),
        ("interval.ms", "", INVALID_CONFIG),
        ("metrics", "", None),
        ("metrics", "a,,b", INVALID_CONFIG),
        ("match", "", None),
        ("match", "client_source_port=[0-9]+,client_source_address=127.*", None),
        ("match", "client_instance_id=x,client_software_version=1", None),
        ("match", "client_id=a,client_id=b", None),
        ("match", "CLIENT_ID=a", INVALID_CONFIG),
        ("match", "nope=a", INVALID_CONFIG),
        ("match", "client_id", INVALID_CONFIG),
        ("match", "client_id=", INVALID_CONFIG),
        ("match", "=a", INVALID_CONFIG),
        ("match", "client_id=a=b", INVALID_CONFIG),
        ("match", "client_id=[", INVALID_CONFIG),
        ("match", "client_id=a{1,2}", INVALID_CONFIG),  # a comma ends an element
        ("nope", "1", INVALID_REQUEST),
    ],
)
async def test_settings_are_checked_as_kafka_does(
    setting: str, value: str, code: ErrorCode | None
) -> None:
    async with LedgerStore.open(None, engine=FaultyEngine(None)) as store:
        metrics = ClientMetricsSubscriptions(store)
        for validate_only in (True, False):
            found = None
            try:
                await metrics.alter(
                    "s", {setting: value}, replace=False, validate_only=validate_only
                )
            except (ApiError, TopicsError) as error:
                found = code_and_message_of(error)[0]
            assert code == found
            is_there = code is None and not validate_only
            assert ({"s"} if is_there else set()) == set(metrics.subscriptions())


async def test_a_subscription_has_a_name() -> None:
    async with LedgerStore.open(None, engine=FaultyEngine(None)) as store:
        metrics = ClientMetricsSubscriptions(store)
        with pytest.raises(ApiError, match="can't be empty"):
            await alter(metrics, "", {"metrics": "a"})
        for name in ("a b", ".", "ü", "x" * 300):
            await alter(metrics, name, {"metrics": "a"})
            assert {"metrics": "a"} == metrics.of(name)
