"""ACL rows: the stored form of access rules.

Rule: one row per rule; the key is the whole rule, so that a rule is never stored twice. Each text
in a key is preceded by its length.
Must not know: when rows are written, what rules decide.

Key:   `acl` 0x01, resource type (u8), pattern type (u8), name, principal, host (each u16 length and
       UTF-8), operation (u8), permission (u8)

Value: | offset | size | name                                              |
       |--------|------|---------------------------------------------------|
       | 0      | 1    | version of this layout, 1                         |
       | 1      | 8    | time of creation, ms since the epoch              |
"""

from typing import Final, NamedTuple

from kledger.ledger import UnreadableRow
from kledger.ledger.record_table import RecordRows
from kledger.ledger.row_format import I64, TEXT16, U8, RowFormat, RowKey, RowLayout
from kledger.security.acl_state import (
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

KEY_PREFIX: Final = b"acl\x01"


class RuleCreation(NamedTuple):
    """What is stored of a rule besides itself."""

    created_ms: int


_KEYS = RowKey(
    "access rule",
    KEY_PREFIX,
    resource_type=U8,
    pattern_type=U8,
    name=TEXT16,
    principal=TEXT16,
    host=TEXT16,
    operation=U8,
    permission=U8,
)
_VALUES = RowFormat[RuleCreation]("access rule", {1: RowLayout(RuleCreation, created_ms=I64)})


def encode_key(rule: AclRule) -> bytes:
    """Return the key of a rule's row."""
    return _KEYS.encode(*rule.pattern[:2], *rule.pattern[2:], *rule[1:])


def decode_row(key: bytes, row: bytes) -> tuple[AclRule, RuleCreation]:
    """Return the rule of a row, and what is stored of it.

    Raises:
        UnreadableRow: the key is of no rule, or the layout is not known.
    """
    resource_type, pattern_type, name, principal, host, operation, permission = _KEYS.decode(key)
    try:
        pattern = ResourcePattern(ResourceType(resource_type), PatternType(pattern_type), name)
        rule = AclRule(pattern, principal, host, Operation(operation), Permission(permission))
    except ValueError as error:
        raise UnreadableRow(f"key {key!r} of an access rule row: {error}") from None
    return rule, _VALUES.decode(row, which=key)


ACL_ROWS: Final = RecordRows[AclRule, RuleCreation](
    prefix=KEY_PREFIX, encode_key=encode_key, encode=_VALUES.encode, decode=decode_row
)
