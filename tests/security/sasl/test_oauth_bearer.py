"""The settings of OAUTHBEARER: nothing is accepted by omission."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kledger.ledger.testing import ManualClock
from kledger.runtime.blocking import InlinePool
from kledger.runtime.tasks import Supervisor
from kledger.security.sasl.mechanism import Authenticated, NeedWork
from kledger.security.sasl.oauth_bearer import (
    UNSECURED_HANDLERS,
    OAuthBearer,
    OAuthBearerConfig,
)
from kledger.security.sasl.oauth_bearer_state import initial_response
from tests.security.token_words import (
    AUDIENCE,
    ISSUER,
    NOW_MS,
    NOW_S,
    assembled,
    key_set_json,
    public,
    rsa_key,
    signed,
)

GOOD = OAuthBearerConfig(
    jwks_endpoint_url="https://issuer.example/keys",
    expected_issuer=ISSUER,
    expected_audience=(AUDIENCE,),
)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"jwks_endpoint_url": ""}, "sasl.oauthbearer.jwks.endpoint.url"),
        ({"expected_issuer": ""}, "sasl.oauthbearer.expected.issuer"),
        ({"expected_audience": ()}, "sasl.oauthbearer.expected.audience"),
        ({"expected_audience": ("",)}, "sasl.oauthbearer.expected.audience"),
        ({"jwks_endpoint_url": "/etc/keys"}, "sasl.oauthbearer.jwks.endpoint.url"),
        ({"jwks_endpoint_url": "ftp://a/b"}, "sasl.oauthbearer.jwks.endpoint.url"),
        ({"jwks_endpoint_url": "https:///b"}, "sasl.oauthbearer.jwks.endpoint.url"),
        ({"jwks_endpoint_url": "file://host/b"}, "sasl.oauthbearer.jwks.endpoint.url"),
        ({"handler_class": "com.example.Mine"}, "sasl.server.callback.handler.class"),
    ],
)
def test_a_missing_setting_is_named(changed: dict[str, Any], named: str) -> None:
    GOOD.check()
    with pytest.raises(ValueError, match=f"^{named}: "):
        replace(GOOD, **changed).check()


async def opened(config: OAuthBearerConfig, supervisor: Supervisor) -> OAuthBearer:
    shared = OAuthBearer(config)
    await shared.open(clock=ManualClock(NOW_MS), supervisor=supervisor, pool=InlinePool())
    return shared


async def test_tokens_are_verified_with_the_keys_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys of the issuer.json"
    file.write_bytes(key_set_json(public(rsa_key())))
    supervisor = Supervisor()
    config = replace(GOOD, jwks_endpoint_url=file.as_uri())
    try:
        shared = await opened(config, supervisor)
        step = shared.mechanism(NOW_MS).evaluate(initial_response(signed()))
        assert isinstance(step, NeedWork)
        assert isinstance(step.resume(step.run()), Authenticated)
    finally:
        await supervisor.close()


@pytest.mark.parametrize("content", [None, b"", b'{"keys":[]}'])
async def test_a_file_without_keys_stops_the_start(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "keys.json"
    if content is not None:
        file.write_bytes(content)
    config = replace(GOOD, jwks_endpoint_url=file.as_uri())
    supervisor = Supervisor()
    with pytest.raises(ValueError, match=r"keys\.json"):
        await opened(config, supervisor)
    assert 0 == supervisor.task_count


@pytest.mark.parametrize("handler", UNSECURED_HANDLERS)
async def test_unsecured_tokens_need_the_class_for_development(
    handler: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        shared = await opened(OAuthBearerConfig(handler_class=handler), Supervisor())
    assert "unsecured tokens" in caplog.text
    token = assembled({"alg": "none"}, {"sub": "ann", "exp": NOW_S + 1})
    step = shared.mechanism(NOW_MS).evaluate(initial_response(token))
    assert isinstance(step, Authenticated)
