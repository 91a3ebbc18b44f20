"""The table of explanations fits the list of scripts."""

import compat_tests.differential
from compat_tests.differential.explained import EXPLANATIONS, explanations_of
from compat_tests.differential.explained_variants import VARIANTS_EXPLAINED
from compat_tests.differential.scripts import SCRIPTS


def test_every_explanation_is_about_scripts_that_there_are() -> None:
    assert compat_tests.differential.__doc__
    for one in (*EXPLANATIONS, *VARIANTS_EXPLAINED):
        assert one.scripts, one.reason
        assert set(one.scripts) <= SCRIPTS.keys()
        assert one.reason
    name = EXPLANATIONS[0].scripts[0]
    assert EXPLANATIONS[0] in explanations_of(name)
    assert [] == explanations_of("nobody")
