"""AlterUserScramCredentials: what is stored, and what is refused with which code."""

import pytest

from kledger.gateway.wire.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kledger.security.credentials import ScramMechanism, make_credential
from tests.gateway.running import RunningGateway, running_gateway

SHA_256, SHA_512 = ScramMechanism
UNSUPPORTED_MECHANISM, NOT_FOUND, DUPLICATE, UNACCEPTABLE, STORAGE = 33, 91, 92, 93, 56
SALT = b"0123456789"


def upsertion(
    name: str, mechanism: ScramMechanism = SHA_256, *, iterations: int = 4096, **changed: object
) -> ScramCredentialUpsertion:
    salted = mechanism.salted_password("pencil", SALT, iterations)
    made = ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism.code,
        iterations=iterations,
        salt=SALT,
        salted_password=salted,
    )
    for field, value in changed.items():
        setattr(made, field, value)
    return made


def of_mechanism(name: str, code: int) -> ScramCredentialUpsertion:
    made = upsertion(name)
    made.mechanism = code
    return made


def deletion(name: str, mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


async def altered(
    gateway: RunningGateway,
    *changes: ScramCredentialDeletion | ScramCredentialUpsertion,
) -> dict[str, int]:
    """Send the changes in one request; return the code of each user."""
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
    )
    async with gateway.client() as client:
        answer = await client.ask(request, 0)
    codes = {each.user: each.error_code for each in answer.results}
    assert len(codes) == len(answer.results)
    return codes


async def test_both_mechanisms_of_a_user_are_set_one_after_the_other() -> None:
    async with running_gateway() as gateway:
        users = gateway.services.users
        assert {"a": 0} == await altered(gateway, upsertion("a"))
        assert {"a": 0} == await altered(gateway, upsertion("a", SHA_512))
        assert make_credential(SHA_256, "pencil", SALT, 4096) == users.find("a", "SCRAM-SHA-256")
        assert make_credential(SHA_512, "pencil", SALT, 4096) == users.find("a", "SCRAM-SHA-512")
        assert {"a": 0} == await altered(gateway, deletion("a"))
        assert ["SCRAM-SHA-512"] == list(users.credentials_of("a"))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (deletion(""), UNACCEPTABLE),
        (deletion("a", 9), UNSUPPORTED_MECHANISM),
        (deletion("a"), NOT_FOUND),
        (upsertion(""), UNACCEPTABLE),
        (upsertion("ä"), UNACCEPTABLE),
        (of_mechanism("a", 0), UNSUPPORTED_MECHANISM),
        (upsertion("a", iterations=4095), UNACCEPTABLE),
        (upsertion("a", iterations=16385), UNACCEPTABLE),
        (upsertion("a", salt=b"x" * 1025), UNACCEPTABLE),
        (upsertion("a", salted_password=b""), UNACCEPTABLE),
    ],
)
async def test_a_mistake_is_refused_and_stores_nothing(
    change: ScramCredentialDeletion | ScramCredentialUpsertion, code: int
) -> None:
    async with running_gateway() as gateway:
        assert {change.name: code} == await altered(gateway, change)
        assert [] == gateway.services.users.names


async def test_a_mistake_leaves_its_user_and_changes_the_others() -> None:
    """As Apache Kafka 4.3 answers: a user is changed once, and the first mistake counts."""
    async with running_gateway() as gateway:
        assert {"here": 0} == await altered(gateway, upsertion("here"))
        assert {
            "here": DUPLICATE,
            "gone": NOT_FOUND,
            "twice": DUPLICATE,
            "both": DUPLICATE,
            "half": DUPLICATE,
            "other": UNSUPPORTED_MECHANISM,
            "right": 0,
        } == await altered(
            gateway,
            deletion("here"),
            deletion("gone"),
            deletion("gone"),
            upsertion("here"),
            upsertion("twice"),
            upsertion("twice"),
            upsertion("both"),
            upsertion("both", SHA_512),
            upsertion("half"),
            of_mechanism("half", 7),
            of_mechanism("other", 7),
            upsertion("other"),
            upsertion("right"),
        )
        assert ["here", "right"] == gateway.services.users.names


async def test_a_failed_write_is_answered_as_one() -> None:
    async with running_gateway() as gateway:
        gateway.engine.fail_next("commit")
        assert {"a": STORAGE} == await altered(gateway, upsertion("a"))
        assert [] == gateway.services.users.names
