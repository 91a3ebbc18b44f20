"""Settings under Kafka's names."""

from kledger.gateway.config import GatewayConfig


def test_kafka_items_show_every_setting_under_its_dotted_name() -> None:
    items = dict(GatewayConfig(node_id=7).kafka_items())
    assert 7 == items["node.id"]
    assert 3_000 == items["group.initial.rebalance.delay.ms"]
    assert items["auto.create.topics.enable"] is True
    assert len(items) == len(GatewayConfig.__slots__)
