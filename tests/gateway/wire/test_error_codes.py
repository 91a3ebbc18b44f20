"""The codes are all of Kafka's, by name and number."""

from kio.schema.errors import ErrorCode as KioErrorCode

from kledger.gateway.wire.error_codes import ErrorCode


def test_codes_are_those_of_an_independent_list() -> None:
    assert {one.name.upper(): one.value for one in KioErrorCode} == {
        one.name: one.value for one in ErrorCode
    }


def test_code_is_a_plain_number() -> None:
    assert 28 == ErrorCode.REBALANCE_IN_PROGRESS + 1
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER is ErrorCode(6)
    assert not ErrorCode.NONE
