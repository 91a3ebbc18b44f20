"""Kledger and Apache Kafka answer alike about delegation tokens: owners, renewers and strangers.

Rule: the same is asked of both, by users with passwords, and what differs by nature (ids, HMACs,
the time) is compared as what it follows from. Apache Kafka goes by a token a moment after it has
answered, so a script asks until its description shows what was done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from compat_tests.differential.masks import Masks
from compat_tests.differential.secured_pair import (
    SUPER_USER,
    SecuredAddresses,
    SecuredPair,
    secured_pair,
)
from compat_tests.differential.side import Side
from kledger.gateway.wire.messages.k30_create_acls import AclCreation, CreateAclsRequest
from kledger.gateway.wire.messages.k38_create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from kledger.gateway.wire.messages.k39_renew_delegation_token import RenewDelegationTokenRequest
from kledger.gateway.wire.messages.k40_expire_delegation_token import ExpireDelegationTokenRequest
from kledger.gateway.wire.messages.k41_describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from kledger.gateway.wire.schema import ApiMessage

pytestmark = pytest.mark.slow
ANN, BOB, CYD = "ann", "bob", "cyd"
MINUTE_MS, DAY_MS = 60_000, 24 * 3_600_000
USER = 7
"""The type of resource, for which the client library has no name."""
CREATE_TOKENS, DESCRIBE_TOKENS = 13, 14
SLACK_MS: Final = 5 * MINUTE_MS
"""Times that differ by less are the same: two servers are asked one after the other."""

Said = tuple[str, tuple[object, ...]]


@pytest.fixture(scope="module", params=["secret-of-tokens", ""], ids=["secret", "no-secret"])
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredPair]:
    """Both servers, with a secret and without."""
    settings = {"delegation.token.secret.key": request.param} if request.param else {}
    with secured_pair(tmp_path_factory, (SUPER_USER, ANN, BOB, CYD), settings) as running:
        yield running


class Script:
    """What users say to one server, and what it answers."""

    def __init__(self, server: SecuredAddresses) -> None:
        self._server = server
        self.said: list[Said] = []
        self._sides: dict[str, Side] = {}

    def side(self, user: str) -> Side:
        """Give the connection of a user; empty: without a login."""
        if user not in self._sides:
            login = (user, f"{user}-secret") if user else None
            bootstrap = self._server.guarded if user else self._server.open
            self._sides[user] = Side(bootstrap, {}, Masks(0), login)
        return self._sides[user]

    def ask(
        self,
        label: str,
        user: str,
        request: ApiMessage,
        version: int,
        summary: Callable[[Any], tuple[object, ...]],
    ) -> Any:
        """Ask, and note what is compared."""
        answer = self.side(user).quietly(request, version)
        self.said.append((f"{label}, by {user or 'nobody'}", summary(answer)))
        return answer

    def close(self) -> None:
        for each in self._sides.values():
            each.close()


def after(time_ms: int, start_ms: int) -> object:
    """Give a time as the minutes behind another one; a constant as itself."""
    if abs(time_ms) < DAY_MS:
        return time_ms
    return round((time_ms - start_ms) / SLACK_MS)


def about_creation(answer: Any) -> tuple[object, ...]:
    start = answer.issue_timestamp_ms
    return (
        answer.error_code, answer.principal_type, answer.principal_name,
        answer.token_requester_principal_type, answer.token_requester_principal_name,
        after(answer.expiry_timestamp_ms, start), after(answer.max_timestamp_ms, start),
        min(start, 1), len(answer.token_id), len(answer.hmac),
    )  # fmt: skip


def about_change(start_ms: int) -> Callable[[Any], tuple[object, ...]]:
    return lambda answer: (answer.error_code, after(answer.expiry_timestamp_ms, start_ms))


def about_description(answer: Any) -> tuple[object, ...]:
    return (
        answer.error_code,
        sorted(
            (
                each.principal_name,
                each.token_requester_principal_name,
                [one.principal_name for one in each.renewers],
                after(each.expiry_timestamp, each.issue_timestamp),
                after(each.max_timestamp, each.issue_timestamp),
            )
            for each in answer.tokens
        ),
    )


def create(owner: str = "", *renewers: str, lifetime_ms: int = -1) -> CreateDelegationTokenRequest:
    return CreateDelegationTokenRequest(
        owner_principal_type="User" if owner else "",
        owner_principal_name=owner,
        renewers=[CreatableRenewers(principal_type="User", principal_name=r) for r in renewers],
        max_lifetime_ms=lifetime_ms,
    )


def describe(*owners: str, is_all: bool = False) -> DescribeDelegationTokenRequest:
    named = [DescribeDelegationTokenOwner(principal_type="User", principal_name=o) for o in owners]
    return DescribeDelegationTokenRequest(owners=None if is_all else named)


def allow(script: Script, user: str, kind: int, name: str, operation: int) -> None:
    """Make a rule, and wait until it is described."""
    creation = AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=3,
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission_type=3,
    )
    script.ask(
        f"rule for {user}",
        "",
        CreateAclsRequest(creations=[creation]),
        3,
        lambda answer: tuple(each.error_code for each in answer.results),
    )


def wait_described(script: Script, is_so: Callable[[Any], bool]) -> None:
    """Wait until the super user sees something."""
    script.side(SUPER_USER).ask_until("tokens", describe(is_all=True), 3, is_so)


def play(script: Script, *, has_secret: bool) -> None:
    """Ask for everything."""
    for version in range(1, 4):
        script.ask("create", "", create(), version, about_creation)
        script.ask("describe", "", describe(is_all=True), version, about_description)
    made = script.ask("create", ANN, create("", BOB), 3, about_creation)
    for owner in (ANN, BOB):
        script.ask(f"create for {owner}", CYD, create(owner), 3, about_creation)
    script.ask("a group as renewer", ANN, _with_group(), 3, about_creation)
    for lifetime_ms in (0, 10 * MINUTE_MS, 30 * DAY_MS):
        request = create(lifetime_ms=lifetime_ms)
        script.ask(f"lifetime {lifetime_ms}", BOB, request, 2, about_creation)
    unknown = bytes(64)
    changes: tuple[ApiMessage, ...] = (
        RenewDelegationTokenRequest(hmac=unknown, renew_period_ms=-1),
        ExpireDelegationTokenRequest(hmac=unknown, expiry_time_period_ms=-1),
    )
    for user in ("", ANN):
        for change in changes:
            script.ask("unknown", user, change, 2, about_change(0))
    if not has_secret:
        script.ask("describe", ANN, describe(is_all=True), 3, about_description)
        return
    wait_described(script, lambda answer: len(answer.tokens) == 4)
    _play_changes(script, made)
    _play_rights(script)


def _with_group() -> CreateDelegationTokenRequest:
    group = CreatableRenewers(principal_type="Group", principal_name="g")
    return CreateDelegationTokenRequest(renewers=[group], max_lifetime_ms=-1)


def _play_changes(script: Script, made: Any) -> None:
    start_ms = made.issue_timestamp_ms
    for user in (ANN, BOB, CYD, SUPER_USER):
        for named in ((), (ANN,), (BOB,), (CYD, SUPER_USER)):
            script.ask(f"describe {named}", user, describe(*named), 3, about_description)
        script.ask("describe all", user, describe(is_all=True), 3, about_description)
    for user in (CYD, BOB, ANN):
        for period_ms in (-1, 0, 3 * 3_600_000, 30 * DAY_MS):
            renewal = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=period_ms)
            script.ask(f"renew {period_ms}", user, renewal, 2, about_change(start_ms))
    for user in (CYD, BOB, ANN):
        for period_ms in (3 * 3_600_000, 30 * DAY_MS):
            ending = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=period_ms)
            script.ask(f"expire {period_ms}", user, ending, 2, about_change(start_ms))
    ending = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
    script.ask("remove", CYD, ending, 2, about_change(start_ms))
    script.ask("remove", BOB, ending, 2, about_change(start_ms))
    wait_described(script, lambda answer: len(answer.tokens) == 3)
    script.ask("remove again", ANN, ending, 2, about_change(start_ms))


def _play_rights(script: Script) -> None:
    allow(script, CYD, USER, "User:ann", CREATE_TOKENS)
    side = script.side(CYD)
    side.ask_until("right", create(ANN), 3, lambda answer: not answer.error_code)
    wait_described(script, lambda answer: len(answer.tokens) == 4)
    script.ask("create for bob", CYD, create(BOB), 3, about_creation)
    script.ask("describe", CYD, describe(is_all=True), 3, about_description)
    allow(script, CYD, USER, "User:bob", DESCRIBE_TOKENS)
    side.ask_until("right", describe(BOB), 3, lambda answer: bool(answer.tokens))
    script.ask("describe of bob", CYD, describe(is_all=True), 3, about_description)


def test_both_answer_the_same(pair: SecuredPair, request: pytest.FixtureRequest) -> None:
    has_secret = "no-secret" not in request.node.name
    scripts = [Script(server) for server in pair.servers]
    for script in scripts:
        play(script, has_secret=has_secret)
        script.close()
    ours, theirs = (script.said for script in scripts)
    differing = [
        f"{label}: {mine} here, {other} there"
        for (label, mine), (_, other) in zip(ours, theirs, strict=True)
        if mine != other
    ]
    assert not differing, "\n" + "\n".join(differing)
