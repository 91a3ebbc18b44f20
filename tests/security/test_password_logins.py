"""Users and passwords outside of SASL: every user of the server, and no other."""

from collections.abc import AsyncIterator

import pytest

from kledger.ledger import LedgerStore
from kledger.ledger.testing import FaultyEngine
from kledger.runtime.entropy import SeededEntropy
from kledger.security.credentials import PLAIN, PLAIN_HASH, ScramMechanism, make_credential
from kledger.security.password_logins import PasswordLogins
from kledger.security.principal import Principal
from kledger.security.sasl.mechanism import Authenticated, AuthenticationFailed, NeedWork, Step
from kledger.security.users import Users

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512


@pytest.fixture
async def logins() -> AsyncIterator[PasswordLogins]:
    async with LedgerStore.open(None, engine=FaultyEngine(None)) as store:
        users = Users(store, SeededEntropy(1))
        await users.alter(
            {
                ("plain", PLAIN): make_credential(PLAIN_HASH, "p", b"s", 4096),
                ("both", PLAIN): make_credential(PLAIN_HASH, "p", b"s", 4096),
                ("both", SHA_256.sasl_name): make_credential(SHA_256, "other", b"s", 4096),
                ("small", SHA_256.sasl_name): make_credential(SHA_256, "p", b"s", 4096),
                ("large", SHA_512.sasl_name): make_credential(SHA_512, "p", b"s", 4096),
            }.items()
        )
        yield PasswordLogins(users, {"given": "p", "plain": "of the settings"})


def outcome(step: Step) -> Step:
    while isinstance(step, NeedWork):
        step = step.resume(step.run())
    return step


@pytest.mark.parametrize("user", ["plain", "both", "small", "large", "given"])
async def test_a_password_opens_for_its_user_alone(logins: PasswordLogins, user: str) -> None:
    assert Authenticated(principal=Principal(user)) == outcome(logins.begin(user, "p"))
    for wrong in ("", "q", "P", "p "):
        with pytest.raises(AuthenticationFailed):
            outcome(logins.begin(user, wrong))


async def test_a_user_of_the_settings_may_be_a_stored_one_too(logins: PasswordLogins) -> None:
    assert Authenticated(principal=Principal("plain")) == logins.begin("plain", "of the settings")


@pytest.mark.parametrize("user", ["", "nobody", "x" * 2_000, "User:plain"])
async def test_an_unknown_user_fails_as_a_wrong_password_does(
    logins: PasswordLogins, user: str
) -> None:
    with pytest.raises(AuthenticationFailed) as of_password:
        outcome(logins.begin("plain", "wrong"))
    with pytest.raises(AuthenticationFailed) as of_user:
        outcome(logins.begin(user, "p"))
    assert str(of_password.value) == str(of_user.value)


async def test_an_unknown_user_costs_the_same_work(logins: PasswordLogins) -> None:
    assert isinstance(logins.begin("nobody", "p"), NeedWork)
    assert isinstance(logins.begin("given", "wrong"), NeedWork)
