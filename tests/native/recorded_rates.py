"""Quotas of bytes that a test sees being used."""

from kledger.security.principal import Principal


class RecordedRates:
    """Quotas that let a client wait for a millisecond for each byte from a number of bytes on."""

    def __init__(self, free: int = 1 << 60) -> None:
        self.left = free
        self.charged: list[tuple[str, str, str, int]] = []

    def charge_produce(self, principal: Principal, client_id: str, size: int) -> int:
        return self._charge("produce", principal, client_id, size)

    def charge_fetch(self, principal: Principal, client_id: str, size: int) -> int:
        return self._charge("fetch", principal, client_id, size)

    def _charge(self, kind: str, principal: Principal, client_id: str, size: int) -> int:
        self.charged.append((kind, principal.name, client_id, size))
        self.left -= size
        return max(-self.left, 0)
