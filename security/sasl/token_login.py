"""Logins with delegation tokens: SCRAM with the token's id as the user (KIP-48).

Rule: the password is the token's HMAC in Base64. The client logs in as the owner, and its session
ends when the token does.
Must not know: messages, how tokens are stored.
"""

from kledger.security.credentials import ScramMechanism
from kledger.security.delegation_tokens import DelegationTokens
from kledger.security.sasl.mechanisms import FindToken
from kledger.security.sasl.scram_state import KnownCredential


def finding_tokens(tokens: DelegationTokens) -> FindToken:
    """Return what finds the credential of a token for a login."""

    def find(mechanism: ScramMechanism, token_id: str, now_ms: int) -> KnownCredential | None:
        found = tokens.find(token_id, now_ms)
        if found is None:
            return None
        is_256 = mechanism is ScramMechanism.SHA_256
        credential = found.scram_sha_256 if is_256 else found.scram_sha_512
        return KnownCredential(credential, found.token.owner, found.token.expiry_ms)

    return find
