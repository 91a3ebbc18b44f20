"""What Kubernetes calls a service is not a setting, and what is mistyped is not a service."""

import pytest

from kledger.kubernetes_variables import is_kubernetes_variable, kubernetes_variables

OF_A_SERVICE = {
    "KLEDGER_KAFKA_SERVICE_HOST": "10.0.0.1",
    "KLEDGER_KAFKA_SERVICE_PORT": "9092",
    "KLEDGER_KAFKA_SERVICE_PORT_CLIENTS": "9092",
    "KLEDGER_KAFKA_PORT": "tcp://10.0.0.1:9092",
    "KLEDGER_KAFKA_PORT_9092_TCP": "tcp://10.0.0.1:9092",
    "KLEDGER_KAFKA_PORT_9092_TCP_PROTO": "tcp",
    "KLEDGER_KAFKA_PORT_9092_TCP_PORT": "9092",
    "KLEDGER_KAFKA_PORT_9092_TCP_ADDR": "10.0.0.1",
    "KLEDGER_SERVICE_HOST": "10.0.0.1",
    "KLEDGER_SERVICE_PORT": "9092",
    "KLEDGER_PORT": "tcp://10.0.0.1:9092",
    "KLEDGER_PORT_9092_TCP": "tcp://10.0.0.1:9092",
}


def test_every_variable_of_a_service_is_one() -> None:
    assert sorted(OF_A_SERVICE) == kubernetes_variables(OF_A_SERVICE | {"PATH": "/bin"})


def test_settings_are_none_of_them() -> None:
    name = "KLEDGER_KAFKA_ADVERTISED_PORT"
    assert [] == kubernetes_variables({name: "tcp://10.0.0.1:9092"}, settings=[name])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KLEDGER_KAFKA_ADVERTSED_PORT", "9092"),
        ("KLEDGER_KAFKA_SERVICE_HOSTS", "h"),
        ("KLEDGER_KAFKA_PORT_9092_TCP_NAME", "h"),
        ("KLEDGER_KAFKA_NODEID", "1"),
        ("OTHER_SERVICE_HOST", "h"),
    ],
)
def test_anything_else_is_none_of_them(name: str, value: str) -> None:
    assert not is_kubernetes_variable(name, value)
