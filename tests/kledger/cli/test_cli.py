"""The command line itself: nouns, help, mistakes in one line."""

import pytest

import kledger
from kledger.cli import NOUNS, failure, run, usage_error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "kledger: the following arguments are required: NOUN"),
        (["nonsense"], "kledger: unknown command 'nonsense', expected one of: serve"),
        (["--nonsense"], "kledger: the following arguments are required: NOUN"),
        (["serve", "--nonsense"], "kledger: unrecognized arguments: --nonsense"),
        (["serve", "--mem"], "kledger: unrecognized arguments: --mem"),
        (["serve", "--set"], "kledger: argument --set: expected one argument"),
        (["serve", "--memory", "--data", "x"], "kledger: argument --data: not allowed with"),
    ],
)
def test_mistake_is_one_line_and_exit_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == run(arguments)
    written = capsys.readouterr()
    assert ("", 1) == (written.out, written.err.count("\n"))
    assert written.err.startswith(message)


def test_help_lists_every_noun(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == run(["--help"])
    text = capsys.readouterr().out
    assert all(noun in text for noun in NOUNS)


@pytest.mark.parametrize("noun", sorted(NOUNS))
def test_every_noun_has_help(noun: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == run([noun, "--help"])
    assert f"kledger {noun}" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == run(["--version"])
    assert f"kledger {kledger.__version__}\n" == capsys.readouterr().out


def test_mistakes_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert (1, 2) == (failure("broken"), usage_error("wrong"))
    assert ("", "kledger: broken\nkledger: wrong\n") == capsys.readouterr()
