"""AlterUserScramCredentials, key 51, version 0 (KIP-554).

Behaviour:
- The client salts the password; it never gets here. What is stored holds when it is answered.
- Each user gets one entry and is changed as a whole or not at all. The first mistake counts, of
  deletions before others: an empty name or one that is not ASCII UNACCEPTABLE_CREDENTIAL, a
  mechanism that does not exist UNSUPPORTED_SASL_MECHANISM, a missing credential to delete
  RESOURCE_NOT_FOUND, iterations out of bounds UNACCEPTABLE_CREDENTIAL, the same mechanism of a user
  twice DUPLICATE_RESOURCE. A salted password is as long as the hash of its mechanism.
"""

from kledger.gateway.api_errors import ApiError
from kledger.gateway.request_context import RequestContext
from kledger.gateway.wire.error_codes import ErrorCode
from kledger.gateway.wire.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kledger.ledger import LedgerError
from kledger.security.credentials import (
    BY_CODE,
    ScramCredential,
    ScramMechanism,
    check_iterations,
    check_user_name,
    credential_from_salted,
)
from kledger.security.users import TooManyUsers, UserMechanism, Users

KEY = 51
MIN_VERSION = 0
MAX_VERSION = 0

SALT_BYTES_MAX = 1_024

Change = ScramCredentialDeletion | ScramCredentialUpsertion


async def handle(
    context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Change the credentials of each user."""
    users = context.services.users
    changes: dict[str, dict[UserMechanism, ScramCredential | None]] = {}
    errors: dict[str, ApiError] = {}
    asked: list[Change] = [*request.deletions, *request.upsertions]
    for change in asked:
        of_user = changes.setdefault(change.name, {})
        if change.name in errors:
            continue
        try:
            key, credential = _checked(users, change)
            _check_once(key, of_user)
            of_user[key] = credential
        except ApiError as error:
            errors[change.name] = error
    results = [
        _result(name, errors.get(name) or await _altered(users, of_user))
        for name, of_user in changes.items()
    ]
    return AlterUserScramCredentialsResponse(results=results)


def _result(name: str, error: ApiError | None) -> AlterUserScramCredentialsResult:
    if error is None:
        return AlterUserScramCredentialsResult(user=name, error_message=None)
    return AlterUserScramCredentialsResult(
        user=name, error_code=error.code, error_message=str(error)
    )


async def _altered(
    users: Users, changes: dict[UserMechanism, ScramCredential | None]
) -> ApiError | None:
    try:
        await users.alter(changes.items())
    except TooManyUsers as error:
        return ApiError(ErrorCode.POLICY_VIOLATION, str(error))
    except LedgerError as error:
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    return None


def _check_once(key: UserMechanism, changes: dict[UserMechanism, ScramCredential | None]) -> None:
    if key in changes:
        raise ApiError(
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        )


def _checked(users: Users, change: Change) -> tuple[UserMechanism, ScramCredential | None]:
    """Return which credential changes, and what it will be.

    Raises:
        ApiError: the change is refused.
    """
    mechanism = BY_CODE.get(change.mechanism)
    try:
        check_user_name(change.name)
        if mechanism is None:
            raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        key = change.name, mechanism.sasl_name
        if isinstance(change, ScramCredentialUpsertion):
            return key, _credential(mechanism, change)
    except ValueError as error:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error)) from None
    if users.find(*key) is None:
        raise ApiError(
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        )
    return key, None


def _credential(mechanism: ScramMechanism, change: ScramCredentialUpsertion) -> ScramCredential:
    check_iterations(change.iterations)
    if not 0 < len(change.salt) <= SALT_BYTES_MAX:
        raise ValueError(f"expected 1 to {SALT_BYTES_MAX} bytes of salt, got {len(change.salt)}")
    size = len(change.salted_password)
    if size != mechanism.digest_bytes:
        raise ValueError(
            f"expected {mechanism.digest_bytes} bytes of a salted password, got {size}"
        )
    return credential_from_salted(mechanism, change.salted_password, change.salt, change.iterations)
