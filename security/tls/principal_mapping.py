"""Principal mapping: from a certificate's subject to a user, by rules (KIP-371).

    ssl.principal.mapping.rules=RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT

Rule: the first rule that matches the whole name decides; DEFAULT takes the name as it is. A name
that no rule matches is no user, and its connection ends. Patterns are RE2's, which take no more
than linear time.
Must not know: certificates.
"""

import re
from collections.abc import Callable
from typing import Any, Final

DEFAULT: Final = "DEFAULT"
RULES_MAX: Final = 100
_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:,|$)"
)
_REFERENCE: Final = re.compile(r"\$(\d)|\\(.)")

Rule = Callable[[str], str | None]


class PrincipalMapping:
    """The rules of one listener."""

    def __init__(self, text: str) -> None:
        """Read the rules.

        Raises:
            ValueError: what was expected.
        """
        self._rules: list[Rule] = []
        position, text = 0, text.strip() or DEFAULT
        while position < len(text):
            found = _RULE.match(text, position)
            if found is None or len(self._rules) >= RULES_MAX:
                raise ValueError(
                    f"expected DEFAULT or RULE:pattern/replacement/[LU], at most {RULES_MAX}, got "
                    f"{text[position:]!r}"
                )
            self._rules.append(_rule(found))
            position = found.end()

    def name_of(self, subject: str) -> str | None:
        """Return the name of a user by the subject of the certificate; None: there is none."""
        for rule in self._rules:
            name = rule(subject)
            if name is not None:
                return name or None
        return None


def _rule(found: re.Match[str]) -> Rule:
    if found["default"]:
        return lambda subject: subject
    pattern, replacement, case = _compiled(found["pattern"]), found["replacement"], found["case"]

    def apply(subject: str) -> str | None:
        match = pattern.fullmatch(subject)
        if match is None:
            return None
        name = _REFERENCE.sub(
            lambda each: (match.group(int(each[1])) or "") if each[1] else each[2], replacement
        )
        return name.lower() if case == "L" else name.upper() if case == "U" else name

    _check_references(pattern.groups, replacement)
    return apply


def _check_references(group_count: int, replacement: str) -> None:
    for reference in _REFERENCE.finditer(replacement):
        if reference[1] and int(reference[1]) > group_count:
            raise ValueError(f"expected at most ${group_count}, got ${reference[1]}")


def _compiled(pattern: str) -> Any:
    import re2  # noqa: PLC0415 - takes long, and few servers need it

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern.replace("\\/", "/"), options=options)
    except re2.error:
        raise ValueError(f"expected a regular expression of RE2, got {pattern!r}") from None
