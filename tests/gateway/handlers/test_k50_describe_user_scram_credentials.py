"""DescribeUserScramCredentials, as Apache Kafka 4.3 answers."""

import pytest

from kledger.gateway.wire.messages.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from kledger.security.credentials import PLAIN, ScramMechanism, make_credential
from tests.gateway.running import running_gateway

NOT_FOUND, DUPLICATE = 91, 92
SHA_256, SHA_512 = ScramMechanism


@pytest.mark.parametrize(
    ("users", "expected"),
    [
        (None, [("alice", 0, [(1, 4096), (2, 8192)]), ("bob", 0, [(2, 8192)])]),
        ([], [("alice", 0, [(1, 4096), (2, 8192)]), ("bob", 0, [(2, 8192)])]),
        (["bob"], [("bob", 0, [(2, 8192)])]),
        (["plain"], [("plain", NOT_FOUND, [])]),
        (
            ["a", "bob", "bob", ""],
            [("a", NOT_FOUND, []), ("bob", DUPLICATE, []), ("", NOT_FOUND, [])],
        ),
    ],
)
async def test_users_are_described_by_mechanism_and_iterations(
    users: list[str] | None, expected: list[tuple[str, int, list[tuple[int, int]]]]
) -> None:
    named = None if users is None else [UserName(name=name) for name in users]
    weak = make_credential(SHA_256, "pencil", b"salt", 4096)
    strong = make_credential(SHA_512, "pencil", b"salt", 8192)
    async with running_gateway() as gateway, gateway.client() as client:
        await gateway.services.users.alter(
            {
                ("alice", "SCRAM-SHA-256"): weak,
                ("alice", "SCRAM-SHA-512"): strong,
                ("bob", "SCRAM-SHA-512"): strong,
                ("plain", PLAIN): strong,
            }.items()
        )
        answer = await client.ask(DescribeUserScramCredentialsRequest(users=named), 0)
        assert 0 == answer.error_code
        assert expected == [
            (
                each.user,
                each.error_code,
                [(one.mechanism, one.iterations) for one in each.credential_infos],
            )
            for each in answer.results
        ]
