"""DescribeUserScramCredentials, key 50: list the SCRAM credentials of users."""

from kledger.gateway.wire.schema import ApiMessage, Int8, Int16, Int32, Struct


class UserName(Struct):
    """One user."""

    name: str = ""


class DescribeUserScramCredentialsRequest(ApiMessage, key=50, versions="0", flexible="0+"):
    """The requested users; null or none means all."""

    users: list[UserName] | None = []


class CredentialInfo(Struct):
    """One mechanism for which a user has a credential."""

    mechanism: Int8 = 0
    iterations: Int32 = 0


class DescribeUserScramCredentialsResult(Struct):
    """Credentials of one user."""

    user: str = ""
    error_code: Int16 = 0
    error_message: str | None = ""
    credential_infos: list[CredentialInfo] = []


class DescribeUserScramCredentialsResponse(ApiMessage, key=50, versions="0", flexible="0+"):
    """Credentials of each user."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    results: list[DescribeUserScramCredentialsResult] = []


REQUEST = DescribeUserScramCredentialsRequest
RESPONSE = DescribeUserScramCredentialsResponse
