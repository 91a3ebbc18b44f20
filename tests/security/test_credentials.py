"""What is stored in place of a password."""

import pytest

from kledger.security.credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramCredential,
    ScramMechanism,
    check_iterations,
    check_user_name,
    decoy_credential,
    is_password_of,
    make_credential,
)

SALT = b"salt" * 8


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_credential_is_of_one_password(mechanism: ScramMechanism) -> None:
    credential = make_credential(mechanism, "pencil", SALT, ITERATIONS_MIN)
    assert is_password_of(mechanism, credential, "pencil")
    assert not is_password_of(mechanism, credential, "pencils")
    assert mechanism.digest_bytes == len(credential.stored_key) == len(credential.server_key)


def test_the_text_of_a_credential_has_no_key() -> None:
    credential = ScramCredential(b"SALT", b"STORED", b"SERVER", 4096)
    assert "ScramCredential(iterations=4096)" == repr(credential) == str(credential)


def test_a_decoy_is_the_same_each_time_and_differs_by_user_and_secret() -> None:
    def salt(user: str, secret: bytes) -> bytes:
        return decoy_credential(ScramMechanism.SHA_256, user, secret).salt

    assert salt("alice", b"secret") == salt("alice", b"secret")
    assert 3 == len({salt("alice", b"secret"), salt("bob", b"secret"), salt("alice", b"other")})


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (ITERATIONS_MIN - 1, "Too few iterations"),
        (ITERATIONS_MAX + 1, "Too many iterations"),
    ],
)
def test_iterations_out_of_bounds_are_refused(count: int, message: str) -> None:
    check_iterations(ITERATIONS_MIN)
    check_iterations(ITERATIONS_MAX)
    with pytest.raises(ValueError, match=message):
        check_iterations(count)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "Username must not be empty"),
        ("a" * 1025, "expected at most 1024 characters"),
        ("jürgen", "expected printable ASCII"),
        ("two\nlines", "expected printable ASCII"),
    ],
)
def test_names_that_no_user_can_have_are_refused(name: str, message: str) -> None:
    check_user_name("alice@example.org, CN=x")
    with pytest.raises(ValueError, match=message):
        check_user_name(name)
