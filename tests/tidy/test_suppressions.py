"""A suppression has its reason in the same line; the tools report those that are not needed."""

import io
import re
import tokenize
from pathlib import PurePosixPath

from tests.tidy.sources import PACKAGES, expect_none, violations

SILENCED = re.compile(
    r"# (noqa|type: ignore|pragma: no cover)(: [A-Z0-9, ]+|\[[^]]*\])?(?P<why>.*)"
)


def unexplained(_path: PurePosixPath, text: str) -> list[str]:
    """Find comments that silence a tool without a word about the reason."""
    found: list[str] = []
    if SILENCED.search(text) is None:
        return found
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        silenced = SILENCED.search(token.string) if token.type == tokenize.COMMENT else None
        if silenced and not re.search("[a-z]{2}", silenced["why"]):
            found.append(f"line {token.start[0]}: {token.string}")
    return found


def test_suppressions_have_reasons() -> None:
    expect_none(violations(unexplained, *PACKAGES))


def test_planted_silence_is_found() -> None:
    path = PurePosixPath("ledger/a.py")
    for comment in ("noqa: S102", "type: ignore[attr-defined]", "pragma: no cover", "noqa"):
        assert unexplained(path, f"x = 1  # {comment}\n")
    for comment in ("noqa: S102 - ours", "type: ignore[a, b]  # as stubs say", "noqa: S102 (ours)"):
        assert not unexplained(path, f"x = 1  # {comment}\n")
    assert not unexplained(path, 'x = "# noqa"\n')
