"""JAAS lines: how Apache Kafka's settings name a login module and its options.

    org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";

Rule: pure. No message quotes a value, as it may be a password.
Must not know: which modules there are.
"""

import re
from typing import Final, NamedTuple

LINE_MAX: Final = 1 << 20
"""Characters of a line."""
USER_PREFIX: Final = "user_"
_CONTROL_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_TOKEN: Final = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^\s"=;]+)|([=;]))', re.DOTALL)


class JaasEntry(NamedTuple):
    """One login module with its options."""

    module: str
    options: dict[str, str]

    @property
    def users(self) -> dict[str, str]:
        """The passwords of the options `user_NAME`, by name."""
        return {
            name.removeprefix(USER_PREFIX): value
            for name, value in self.options.items()
            if name.startswith(USER_PREFIX)
        }


def parse_jaas(text: str) -> JaasEntry:
    """Read a line with one login module.

    Raises:
        ValueError: what was expected.
    """
    if len(text) > LINE_MAX:
        raise ValueError(f"expected at most {LINE_MAX} characters")
    words = _words(text)
    if len(words) < 3 or words[1].lower() not in _CONTROL_FLAGS or words[-1] != ";":
        raise ValueError('expected MODULE required OPTION="VALUE" … with a semicolon at the end')
    options: dict[str, str] = {}
    rest = words[2:-1]
    if len(rest) % 3:
        raise ValueError('expected OPTION="VALUE" for each option')
    for name, equals, value in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        if equals != "=" or name in options:
            raise ValueError('expected OPTION="VALUE" for each option, and each once')
        options[name] = value
    return JaasEntry(words[0], options)


def _words(text: str) -> list[str]:
    words, position = [], 0
    text = text.strip()
    while position < len(text):
        word = _TOKEN.match(text, position)
        if word is None:
            raise ValueError("expected quotation marks in pairs")
        quoted, plain, sign = word.groups()
        words.append(re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain or sign)
        position = word.end()
    return words
