"""AlterUserScramCredentials: no credential can be set without authentication."""

from kledger.gateway.wire.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tests.gateway.running import running_gateway

UNSUPPORTED_MECHANISM, NOT_FOUND, DUPLICATE, UNACCEPTABLE = 33, 91, 92, 93


async def test_every_change_is_refused_with_its_reason() -> None:
    gone = [("a", 1), ("", 1), ("z", 9), ("twice", 1)]
    new = [("b", 2), ("twice", 2)]
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=name, mechanism=kind) for name, kind in gone],
        upsertions=[
            ScramCredentialUpsertion(name=name, mechanism=kind, iterations=4096)
            for name, kind in new
        ],
    )
    async with running_gateway() as gateway, gateway.client() as client:
        answer = await client.ask(request, 0)
        assert {
            "a": NOT_FOUND,
            "": UNACCEPTABLE,
            "z": UNSUPPORTED_MECHANISM,
            "twice": DUPLICATE,
            "b": UNSUPPORTED_MECHANISM,
        } == {each.user: each.error_code for each in answer.results}
        assert 5 == len(answer.results)
