"""Rules from Kafka's documents, and mistakes in rules."""

import pytest

from kledger.security.tls.principal_mapping import PrincipalMapping

DOCUMENTED = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L, DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("", "CN=app,O=x", "CN=app,O=x"),
        ("DEFAULT", "CN=app,O=x", "CN=app,O=x"),
        (DOCUMENTED, "CN=serviceuser,OU=ServiceUsers,O=Unknown,C=Unknown", "serviceuser"),
        (
            DOCUMENTED,
            "CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown",
            "adminuser@admin",
        ),
        (DOCUMENTED, "O=x,CN=Other", "other"),
        (DOCUMENTED, "O=x", "O=x"),
        ("RULE:CN=(.*)/$1/U", "CN=app", "APP"),
        ("RULE:CN=(.*),O=x/$1/", "CN=app,O=x,C=y", None),
        (r"RULE:CN=a\/b/x\/y/", "CN=a/b", "x/y"),
        ("RULE:CN=.*//", "CN=app", None),
    ],
)
def test_the_first_rule_that_matches_the_whole_subject_decides(
    rules: str, subject: str, name: str | None
) -> None:
    assert name == PrincipalMapping(rules).name_of(subject)


@pytest.mark.parametrize(
    "rules",
    ["RULE:", "RULE:a/b", "RULE:a/b/X", "NONE", "RULE:(/x/", "RULE:a/$1/", "DEFAULT DEFAULT"],
)
def test_a_mistake_in_the_rules_is_refused(rules: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        PrincipalMapping(rules)


def test_rules_are_limited() -> None:
    PrincipalMapping(",".join(["DEFAULT"] * 100))
    with pytest.raises(ValueError, match="at most 100"):
        PrincipalMapping(",".join(["DEFAULT"] * 101))
