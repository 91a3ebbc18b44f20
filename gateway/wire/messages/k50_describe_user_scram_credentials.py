"""DescribeUserScramCredentials, key 50: which users have passwords."""

from kledger.gateway.wire.schema import ApiMessage, Int8, Int16, Int32, Struct


class UserName(Struct):
    """One user."""

    name: str = ""


class DescribeUserScramCredentialsRequest(ApiMessage, key=50, versions="0", flexible="0+"):
    """Users asked about; null or none stands for all."""

    users: list[UserName] | None = []


class CredentialInfo(Struct):
    """One mechanism that a user has a password for."""

    mechanism: Int8 = 0
    iterations: Int32 = 0


class DescribeUserScramCredentialsResult(Struct):
    """What one user has."""

    user: str = ""
    error_code: Int16 = 0
    error_message: str | None = ""
    credential_infos: list[CredentialInfo] = []


class DescribeUserScramCredentialsResponse(ApiMessage, key=50, versions="0", flexible="0+"):
    """What each user has."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    results: list[DescribeUserScramCredentialsResult] = []


REQUEST = DescribeUserScramCredentialsRequest
RESPONSE = DescribeUserScramCredentialsResponse
