"""The field's words: names and sentences have no words that only this project would use so.

Rule: a reader who knows Kafka, Pulsar and asyncio needs no glossary. A sentence has a class, a
client or a server as its subject; a name is the word of the field.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest

from tests.tidy.sources import (
    PACKAGES,
    PROGRAMS,
    expect_none,
    nodes_of,
    python_files,
    read,
    tracked_files,
)

IN_NAMES = {
    "hear": "a listener is called, a message is received",
    "heard": "a listener is called, a message is received",
    "hears": "a listener is called, a message is received",
    "owe": "unacknowledged, unanswered, pending",
    "owed": "unacknowledged, unanswered, pending",
    "owes": "unacknowledged, unanswered, pending",
    "patience": "timeout, wait",
    "tells": "a response has, a method returns",
    "told": "a response has, a listener is called with",
    "whoever": "the user, the client, the caller",
    "whom": "the user, the client, the caller",
}
"""Words that no name of a class, function, argument or variable contains, and what to write."""

_WHO = "name the user, client, broker or caller"
IN_SENTENCES = {
    r"\b[Ww]ho(ever|m)\b": _WHO,
    r"\b(by|of|only|from|than|for|but) who\b": _WHO,
    r"(^|\. |Rule: |\"\"\")Who (?!(is|are|owns)\b)[a-z]+s\b": _WHO,
    r"\bMust not know:[^\n]*\bwho\b": "name what decides",
    r"\b(is|are|was|were|be|been|gets?) told\b": "a response has it, a listener is called",
    r"\b(hears?|heard) (of|from|that|about)\b": "receives, is called with, applies",
    r"\bowe[sd]?\b": "unacknowledged, unanswered, pending",
    r"\b([Aa]|one|each|every|this|that|next|last|first) look\b(?!-)": "a poll, a read, a lookup",
    r"\blooks (under way|go on|of)\b": "polls, reads",
    r"\b(takes?|in) (its|their) turns?\b": "alternately, in order, first in the queue",
    r"\bworks? off\b": "deletes, processes",
    r"\bas far as (it|they|he) (matters?|knows?|goes?)\b": "say what is known, or the limit",
    r"\b(for people|[Pp]eople are)\b": "say what shows it: a command, a log, a page",
    r"\b(peer|database|store|broker|server)s?( that)? (is|are|was|were) away\b": "unavailable",
    r"\btalk(s|ed|ing)? to\b": "connects to, sends requests to",
}  # fmt: skip
"""Patterns that no docstring, comment, text or document has, and what to write instead."""

WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
PATTERNS = [(re.compile(each, re.MULTILINE), advice) for each, advice in IN_SENTENCES.items()]
SELF = PurePosixPath("tests/tidy/test_words.py")
GENERATED = {PurePosixPath("docs/COMPATIBILITY.md")}


def names_of(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of every name that a module defines."""
    for node in nodes_of(text):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.lineno, node.name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name


def private_names(_path: PurePosixPath, text: str) -> list[str]:
    """Find names with a word of `IN_NAMES`."""
    return [
        f"line {line}: {name} has {word.lower()!r}; write: {IN_NAMES[word.lower()]}"
        for line, name in names_of(text)
        for word in WORD.findall(name)
        if word.lower() in IN_NAMES
    ]


def sentences_of(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of every comment and string of a module."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in {tokenize.COMMENT, tokenize.STRING}:
            yield token.start[0], token.string


def private_sentences(path: PurePosixPath, text: str) -> list[str]:
    """Find sentences with a pattern of `IN_SENTENCES`."""
    if not any(pattern.search(text) for pattern, _ in PATTERNS):
        return []  # few modules have one anywhere, and splitting all of them takes seconds
    blocks = sentences_of(text) if path.suffix == ".py" else [(1, text)]
    return [
        f"line {line + block[: match.start()].count(chr(10))}: {match[0]!r}; write: {advice}"
        for line, block in blocks
        for pattern, advice in PATTERNS
        for match in pattern.finditer(block)
    ]


def test_no_name_is_a_private_word() -> None:
    expect_none(
        [
            f"{path}: {found}"
            for path, text in python_files(*PACKAGES, *PROGRAMS, "tests")
            if path != SELF
            for found in private_names(path, text)
        ]
    )


def test_no_sentence_has_private_words() -> None:
    documents = [
        (path, read(path))
        for path in tracked_files()
        if path.suffix == ".md" and path not in GENERATED
    ]
    sources = python_files(*PACKAGES, *PROGRAMS, "tests")
    expect_none(
        [
            f"{path}: {found}"
            for path, text in [*documents, *sources]
            if path != SELF
            for found in private_sentences(path, text)
        ]
    )


@pytest.mark.parametrize("name", ["what_is_owed", "PeerTold", "_heard", "patience_ms", "whom"])
def test_planted_names_are_found(name: str) -> None:
    assert 1 == len(private_names(SELF, f"{name} = 1\n"))


@pytest.mark.parametrize(
    "sentence",
    [
        "Whoever asks gets it.", "The client is told so.", "A look under way ends.",
        "Must not know: rows, who reads.", "Refused by who may not be the owner.",
        "Who connects proves itself first.", "A peer that is away fails.", "Lines for people.",
        "People are talked to by the command.",
    ],
)  # fmt: skip
def test_planted_sentences_are_found(sentence: str) -> None:
    assert private_sentences(PurePosixPath("docs/x.md"), sentence)
    assert private_sentences(PurePosixPath("topics/x.py"), f'"""{sentence}"""\n')


def test_plain_words_pass() -> None:
    plain = "A lookup of the look-ahead limit; users who authenticate; whole rows; a loop turns."
    assert [] == private_sentences(PurePosixPath("docs/x.md"), plain)
    assert [] == private_names(SELF, "look_ahead_max = show = withheld = 1\n")
