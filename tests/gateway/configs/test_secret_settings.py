"""Secrets of the settings are in no answer of DescribeConfigs."""

from kledger.gateway.config import GatewayConfig
from kledger.gateway.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from kledger.security.secret_text import SecretText
from tests.gateway.running import running_gateway

BROKER = 4
SECRETS = {
    "delegation_token_secret_key": "s3cret-of-tokens",
    "ssl_key_password": "s3cret-of-the-key",
    "ssl_keystore_key": "s3cret-key",
    "sasl_jaas_config": 'user_ann="s3cret-of-ann"',
}


async def test_secrets_are_described_without_their_values() -> None:
    config = GatewayConfig()
    for name, value in SECRETS.items():
        setattr(config, name, SecretText(value))
    async with running_gateway(config) as gateway, gateway.client() as client:
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=BROKER, resource_name="1", configuration_keys=None
                )
            ],
            include_synonyms=True,
            include_documentation=True,
        )
        answer = await client.ask(request, 4)
    described = {each.name: each for each in answer.results[0].configs}
    for name in SECRETS:
        entry = described[name.replace("_", ".")]
        assert (True, None) == (entry.is_sensitive, entry.value)
    assert "s3cret" not in repr(answer)
    assert "s3cret" not in repr(config)
