"""AlterUserScramCredentials, key 51, version 0 (KIP-554).

Behaviour:
- The client salts the password; it never gets here. What is stored holds when it is answered.
- Each user gets one entry, and can be changed once: another change of the same user, also of the
  other mechanism, is DUPLICATE_RESOURCE, unless the first one is refused for another reason. An
  empty name or one that is not ASCII is UNACCEPTABLE_CREDENTIAL, a mechanism that does not exist
  UNSUPPORTED_SASL_MECHANISM, a missing credential to delete RESOURCE_NOT_FOUND, iterations out of
  bounds and an empty password UNACCEPTABLE_CREDENTIAL.
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

PART_BYTES_MAX = 1_024

Change = ScramCredentialDeletion | ScramCredentialUpsertion


async def handle(
    context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Change the credentials of each user."""
    users = context.services.users
    changes: dict[str, tuple[UserMechanism, ScramCredential | None]] = {}
    errors: dict[str, ApiError] = {}
    asked: list[Change] = [*request.deletions, *request.upsertions]
    for change in asked:
        name = change.name
        if name in changes:
            errors[name] = ApiError(
                ErrorCode.DUPLICATE_RESOURCE,
                "A user credential cannot be altered twice in the same request",
            )
        elif name not in errors:
            try:
                changes[name] = _checked(users, change)
            except ApiError as error:
                errors[name] = error
    results = [
        _result(name, errors.get(name) or await _altered(users, changes[name]))
        for name in dict.fromkeys(change.name for change in asked)
    ]
    return AlterUserScramCredentialsResponse(results=results)


def _result(name: str, error: ApiError | None) -> AlterUserScramCredentialsResult:
    if error is None:
        return AlterUserScramCredentialsResult(user=name, error_message=None)
    return AlterUserScramCredentialsResult(
        user=name, error_code=error.code, error_message=str(error)
    )


async def _altered(
    users: Users, change: tuple[UserMechanism, ScramCredential | None]
) -> ApiError | None:
    try:
        await users.alter([change])
    except TooManyUsers as error:
        return ApiError(ErrorCode.POLICY_VIOLATION, str(error))
    except LedgerError as error:
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    return None


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
    if not change.salted_password:
        raise ValueError("expected a salted password")
    if max(len(change.salt), len(change.salted_password)) > PART_BYTES_MAX:
        raise ValueError(f"expected at most {PART_BYTES_MAX} bytes of salt and of a password")
    return credential_from_salted(mechanism, change.salted_password, change.salt, change.iterations)
