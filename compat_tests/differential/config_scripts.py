"""Settings of groups and of subscriptions to client metrics: shown, changed, replaced, listed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from compat_tests.differential.scripts import script
from compat_tests.differential.side import Side
from kledger.gateway.wire.messages import k32_describe_configs as k32
from kledger.gateway.wire.messages import k33_alter_configs as k33
from kledger.gateway.wire.messages import k44_incremental_alter_configs as k44
from kledger.gateway.wire.messages.k74_list_config_resources import ListConfigResourcesRequest

DESCRIBE, ALTER, INCREMENTAL, LIST = 32, 33, 44, 74
METRICS, GROUP = 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
LOCKS, RESET = "share.partition.max.record.locks", "share.auto.offset.reset"
Change = tuple[str, int, str | None]

VALUES: Final[Mapping[int, Mapping[str, tuple[str, ...]]]] = {
    GROUP: {
        SESSION: ("45000", "60000", " 50000 ", "44999", "60001", "0", "-1", "x", "", "9999999999"),
        HEARTBEAT: ("5000", "15000", "+7000", "4999", "15001", "0"),
        "consumer.assignment.interval.ms": ("0", "15000", "15001", "-1"),
        "share.session.timeout.ms": ("45000", "44999", "60001"),
        "share.heartbeat.interval.ms": ("15000", "4999", "15001"),
        "share.assignment.interval.ms": ("15000", "-1", "15001"),
        "share.delivery.count.limit": ("2", "10", "1", "11"),
        "share.record.lock.duration.ms": ("15000", "60000", "14999", "60001"),
        LOCKS: ("100", "4000", "99", "4001"),
        RESET: ("earliest", "by_duration:PT1H", "by_duration:P1DT2M0.5S", "by_duration:x", "none"),
        "share.isolation.level": ("read_committed", "READ_COMMITTED", ""),
        "share.renew.acknowledge.enable": ("FALSE", "no"),
        "streams.session.timeout.ms": ("60000", "44999", "60001"),
        "streams.heartbeat.interval.ms": ("5000", "4999", "15001"),
        "streams.assignment.interval.ms": ("0", "-1", "15001"),
        "streams.initial.rebalance.delay.ms": ("0", "2147483647", "-1", "2147483648"),
        "streams.num.standby.replicas": ("2", "3", "-1"),
        "no.such": ("1",),
    },
    METRICS: {
        "interval.ms": ("100", "3600000", " 1000 ", "99", "3600001", "-1", "x", "", "9999999999"),
        "metrics": ("*", "a.,b.", " a , b ,a", "x y", "", "a,,b"),
        "match": (
            "client_id=a.*,client_software_name=x", "client_source_port=[0-9]+", " client_id = a ",
            "client_source_address=127.*,client_software_version=1,client_instance_id=x", "",
            "client_id=a,client_id=b", "client_id=[", "client_id", "client_id=", "=a",
            "CLIENT_ID=a", "nope=a", "client_id=a=b", "client_id=a{1,2}",
        ),
        "no.such": ("1",),
    },
}  # fmt: skip
"""What is set, by type of resource and name of the setting."""
KEYS: Final = {GROUP: (SESSION, RESET), METRICS: ("interval.ms", "metrics")}
"""Two settings of each type, and what they are set to: `ONE` and `OTHER`."""
ONE: Final = {GROUP: {SESSION: "50000"}, METRICS: {"interval.ms": "2000"}}
OTHER: Final = {GROUP: {RESET: "earliest"}, METRICS: {"metrics": "a.,b."}}


def changed(
    kind: int, name: str, *changes: Change, validate: bool = False
) -> k44.IncrementalAlterConfigsRequest:
    configs = [
        k44.AlterableConfig(name=key, config_operation=how, value=value)
        for key, how, value in changes
    ]
    resource = k44.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return k44.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate)


def replaced(
    kind: int, name: str, settings: Mapping[str, str | None], *, validate: bool = False
) -> k33.AlterConfigsRequest:
    configs = [k33.AlterableConfig(name=key, value=value) for key, value in settings.items()]
    resource = k33.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return k33.AlterConfigsRequest(resources=[resource], validate_only=validate)


def described(
    kind: int, name: str, keys: list[str] | None = None, *, synonyms: bool = True
) -> k32.DescribeConfigsRequest:
    resource = k32.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    return k32.DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms)


def shows(settings: Mapping[str, str]) -> Any:
    """Whether an answer shows these settings; Kafka's broker applies them a moment later."""

    def is_so(answer: Any) -> bool:
        found = {each.name: each.value for each in answer.results[0].configs}
        return settings.items() <= found.items()

    return is_so


@script
def settings_of_groups_and_metrics_are_described(side: Side) -> None:
    for kind in (GROUP, METRICS):
        side.quietly(changed(kind, "shown", *_as_changes(ONE[kind])), 1)
        side.ask_until("set", described(kind, "shown"), 4, shows(ONE[kind]))
        for version in side.versions(DESCRIBE):
            for name in ("shown", "nobody", "a b", ""):
                for keys in (None, [KEYS[kind][0]], ["no.such"]):
                    for synonyms in (False, True):
                        request = described(kind, name, keys, synonyms=synonyms)
                        label = f"type {kind} name {name!r} keys {keys} synonyms {synonyms}"
                        side.ask(label, request, version)
        side.quietly(replaced(kind, "shown", {}), 2)


@script
def settings_of_groups_and_metrics_are_checked(side: Side) -> None:
    for kind in (GROUP, METRICS):
        for version in side.versions(INCREMENTAL):
            for key, values in VALUES[kind].items():
                for value in values:
                    for validate in (True, False):
                        request = changed(kind, f"v{version}", (key, SET, value), validate=validate)
                        side.ask(f"{key}={value!r}, validate {validate}", request, version)
            side.quietly(changed(kind, f"v{version}", *_as_changes(OTHER[kind])), 1)
            as_they_are = described(kind, f"v{version}")
            side.ask_until("as they are now", as_they_are, 4, shows(OTHER[kind]))
            side.quietly(replaced(kind, f"v{version}", {}), 2)


@script
def settings_of_groups_and_metrics_are_changed(side: Side) -> None:
    for kind in (GROUP, METRICS):
        one, other = KEYS[kind]
        ((_, value),), (good,) = ONE[kind].items(), OTHER[kind].items()
        cases: dict[str, tuple[Change, ...]] = {
            "set": ((one, SET, value),),
            "append": ((other, APPEND, "earliest"),),
            "subtract": ((other, SUBTRACT, "earliest"),),
            "append to a number": ((one, APPEND, "1"),),
            "unknown setting": (("no.such", SET, "1"),),
            "append to an unknown setting": (("no.such", APPEND, "1"),),
            "delete an unknown setting": (("no.such", DELETE, None),),
            "null": ((one, SET, None),),
            "twice": ((one, SET, value), (one, DELETE, None)),
            "good and bad": ((other, SET, good[1]), (one, SET, "1")),
            "delete": ((one, DELETE, None),),
            "delete what is not set": ((one, DELETE, None),),
            "nothing": (),
            "last": ((other, SET, good[1]),),
        }
        for version in side.versions(INCREMENTAL):
            name = f"changed-{version}"
            for label, changes in cases.items():
                for named in (name, ""):
                    for validate in (True, False):
                        request = changed(kind, named, *changes, validate=validate)
                        side.ask(f"{label}, name {named!r}, validate {validate}", request, version)
            side.ask_until("as they are now", described(kind, name), 4, shows(OTHER[kind]))
            side.quietly(replaced(kind, name, {}), 2)


@script
def settings_of_groups_and_metrics_are_replaced(side: Side) -> None:
    for kind in (GROUP, METRICS):
        one, other = ONE[kind], OTHER[kind]
        cases: dict[str, Mapping[str, str | None]] = {
            "one": one,
            "unknown setting": {**other, "no.such": "1"},
            "bad value": {KEYS[kind][0]: "1"},
            "null": dict.fromkeys(one),
            "other": other,
        }
        for version in side.versions(ALTER):
            name = f"replaced-{version}"
            for label, settings in cases.items():
                for named in (name, ""):
                    for validate in (True, False):
                        request = replaced(kind, named, settings, validate=validate)
                        side.ask(f"{label}, name {named!r}, validate {validate}", request, version)
            side.ask_until("as they are now", described(kind, name), 4, shows(other))
            side.ask("none", replaced(kind, name, {}), version)


@script
def groups_and_metrics_with_settings_are_listed(side: Side) -> None:
    for kind in (GROUP, METRICS):
        for name in ("listed", "a b", "ü", "x" * 300):
            side.quietly(changed(kind, name, *_as_changes(ONE[kind])), 1)
    for label, count in (("all", 4), ("one less", 3)):
        for version in side.versions(LIST):
            for types in ([GROUP], [METRICS], [GROUP, GROUP], [3], [-1], [GROUP, 0]):
                request = ListConfigResourcesRequest(resource_types=types if version else [])
                side.ask_until(
                    f"{label}, types {types}",
                    request,
                    version,
                    partial(_is_settled, count=count),
                )
        for kind in (GROUP, METRICS):
            side.quietly(replaced(kind, "ü", {}), 2)
    for kind in (GROUP, METRICS):
        for name in ("listed", "a b", "x" * 300):
            side.quietly(replaced(kind, name, {}), 2)


def _is_settled(answer: Any, count: int) -> bool:
    listed = [one for one in answer.config_resources if one.resource_type in (GROUP, METRICS)]
    return bool(answer.error_code) or len(listed) == count


def _as_changes(settings: Mapping[str, str]) -> list[Change]:
    return [(key, SET, value) for key, value in settings.items()]
