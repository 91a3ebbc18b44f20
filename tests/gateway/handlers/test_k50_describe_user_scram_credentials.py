"""DescribeUserScramCredentials, as Apache Kafka 4.3 answers when there are none."""

import pytest

from kledger.gateway.wire.messages.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tests.gateway.running import running_gateway

NOT_FOUND, DUPLICATE = 91, 92


@pytest.mark.parametrize(
    ("users", "expected"),
    [
        (None, []),
        ([], []),
        (["a"], [("a", NOT_FOUND)]),
        (["a", "b", "b", ""], [("a", NOT_FOUND), ("b", DUPLICATE), ("", NOT_FOUND)]),
    ],
)
async def test_no_user_has_credentials(
    users: list[str] | None, expected: list[tuple[str, int]]
) -> None:
    named = None if users is None else [UserName(name=name) for name in users]
    async with running_gateway() as gateway, gateway.client() as client:
        answer = await client.ask(DescribeUserScramCredentialsRequest(users=named), 0)
        assert 0 == answer.error_code
        assert expected == [(each.user, each.error_code) for each in answer.results]
