"""AlterUserScramCredentials, key 51: change SCRAM credentials."""

from kledger.gateway.wire.schema import ApiMessage, Int8, Int16, Int32, Struct


class ScramCredentialDeletion(Struct):
    """A credential to delete."""

    name: str = ""
    mechanism: Int8 = 0


class ScramCredentialUpsertion(Struct):
    """A credential to set."""

    name: str = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: bytes = b""
    salted_password: bytes = b""


class AlterUserScramCredentialsRequest(ApiMessage, key=51, versions="0", flexible="0+"):
    """Credentials to set and delete."""

    deletions: list[ScramCredentialDeletion] = []
    upsertions: list[ScramCredentialUpsertion] = []


class AlterUserScramCredentialsResult(Struct):
    """Outcome for one user."""

    user: str = ""
    error_code: Int16 = 0
    error_message: str | None = ""


class AlterUserScramCredentialsResponse(ApiMessage, key=51, versions="0", flexible="0+"):
    """Outcome for each user."""

    throttle_time_ms: Int32 = 0
    results: list[AlterUserScramCredentialsResult] = []


REQUEST = AlterUserScramCredentialsRequest
RESPONSE = AlterUserScramCredentialsResponse
