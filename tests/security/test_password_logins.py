"""Users and passwords outside of SASL: every user of the server, and no other."""

from collections.abc import AsyncIterator

import pytest

from kledger.ledger import LedgerStore
from kledger.ledger.testing import FaultyEngine, ManualClock
from kledger.runtime.blocking import InlinePool
from kledger.runtime.entropy import SeededEntropy
from kledger.security.credentials import PLAIN, PLAIN_HASH, ScramMechanism, make_credential
from kledger.security.delegation_token_state import DelegationTokenConfig, scram_password
from kledger.security.delegation_tokens import DelegationTokens
from kledger.security.password_logins import PasswordLogins
from kledger.security.principal import Principal
from kledger.security.sasl.mechanism import Authenticated, AuthenticationFailed, NeedWork, Step
from kledger.security.users import Users

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512


NOW_MS = 5_000
TOKEN_ID, OWNER = "token-id", Principal("owner")
CONFIG = DelegationTokenConfig(secret_key="s3cret", expiry_time_ms=100)


class TokensOfTest(DelegationTokens):
    """Tokens of which the first one has a known id."""

    def _new_id(self) -> str:
        return TOKEN_ID


@pytest.fixture
async def logins() -> AsyncIterator[PasswordLogins]:
    clock = ManualClock(NOW_MS)
    async with LedgerStore.open(None, engine=FaultyEngine(None), clock=clock) as store:
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
        tokens = TokensOfTest(
            store, CONFIG, clock=clock, entropy=SeededEntropy(1), pool=InlinePool()
        )
        await tokens.create(owner=OWNER, requester=OWNER, renewers=(), max_lifetime_ms=-1)
        yield PasswordLogins(users, {"given": "p", "plain": "of the settings"}, tokens)


def outcome(step: Step) -> Step:
    while isinstance(step, NeedWork):
        step = step.resume(step.run())
    return step


@pytest.mark.parametrize("user", ["plain", "both", "small", "large", "given"])
async def test_a_password_opens_for_its_user_alone(logins: PasswordLogins, user: str) -> None:
    assert Authenticated(principal=Principal(user)) == outcome(logins.begin(user, "p", NOW_MS))
    for wrong in ("", "q", "P", "p "):
        with pytest.raises(AuthenticationFailed):
            outcome(logins.begin(user, wrong, NOW_MS))


async def test_a_user_of_the_settings_may_be_a_stored_one_too(logins: PasswordLogins) -> None:
    step = logins.begin("plain", "of the settings", NOW_MS)
    assert Authenticated(principal=Principal("plain")) == step


async def test_a_delegation_token_opens_for_its_owner_until_it_expires(
    logins: PasswordLogins,
) -> None:
    password = scram_password(CONFIG.hmac_of(TOKEN_ID))
    expected = Authenticated(principal=OWNER, expires_at_ms=NOW_MS + 100, is_token=True)
    assert expected == logins.begin(TOKEN_ID, password, NOW_MS)
    for user, given, now_ms in (
        (TOKEN_ID, "p", NOW_MS),
        (TOKEN_ID, password.lower(), NOW_MS),
        (TOKEN_ID, password, NOW_MS + 101),
        ("another", password, NOW_MS),
        ("plain", password, NOW_MS),
    ):
        with pytest.raises(AuthenticationFailed):
            outcome(logins.begin(user, given, now_ms))


@pytest.mark.parametrize("user", ["", "nobody", "x" * 2_000, "User:plain"])
async def test_an_unknown_user_fails_as_a_wrong_password_does(
    logins: PasswordLogins, user: str
) -> None:
    with pytest.raises(AuthenticationFailed) as of_password:
        outcome(logins.begin("plain", "wrong", NOW_MS))
    with pytest.raises(AuthenticationFailed) as of_user:
        outcome(logins.begin(user, "p", NOW_MS))
    assert str(of_password.value) == str(of_user.value)


async def test_an_unknown_user_costs_the_same_work(logins: PasswordLogins) -> None:
    assert isinstance(logins.begin("nobody", "p", NOW_MS), NeedWork)
    assert isinstance(logins.begin("given", "wrong", NOW_MS), NeedWork)
