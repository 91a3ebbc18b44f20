"""Cases are chosen by name, by durability, or by the beginning of their names."""

import pytest

from benchmarks.cases import (
    CASES,
    EMBEDDED,
    FSYNC,
    GROUP,
    KAFKA,
    KAFKA_SYNC,
    NAMED,
    NAMED_REMOTE,
    OS,
    REMOTE,
    choose,
    quick,
)


def test_no_name_chooses_all() -> None:
    assert choose([]) == list(CASES)


def test_name_chooses_its_case() -> None:
    assert [case.name for case in choose(["consume-1k"])] == ["consume-1k"]


def test_durability_behind_a_name_keeps_its_subjects() -> None:
    (case,) = choose(["produce-1k-os"])
    assert (case.name, case.subjects) == ("produce-1k", (OS, KAFKA))
    (case,) = choose(["produce-1k-fsync"])
    assert (case.name, case.subjects) == ("produce-1k", (KAFKA, FSYNC, KAFKA_SYNC))


def test_star_chooses_by_the_beginning() -> None:
    assert len(choose(["consume-*"])) > 4
    assert all(case.name.startswith("consume-") for case in choose(["consume-*"]))


def test_unknown_name_is_refused_with_the_list() -> None:
    with pytest.raises(ValueError, match="produce-1k"):
        choose(["produce-2k"])


def test_names_are_unique_and_no_name_hides_a_durability() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert not {name + suffix for name in names for suffix in ("-os", "-fsync")} & set(names)


def test_members_of_a_group_have_a_partition_each() -> None:
    native = choose(["native-*"])
    assert {"native-produce", "native-consume", "native-shared", "native-drain"} == {
        case.kind for case in native
    }
    assert all(case.partitions == case.consumers for case in native)
    assert {1, 8} == {case.consumers for case in native if case.kind == "native-shared"}


def test_named_topics_are_measured_beside_subscriptions_and_groups() -> None:
    named = choose(["named-*"])
    assert {
        (f"named-{work}", channels)
        for work in ("publish", "receive", "commit")
        for channels in (1, 17)
    } == {(case.kind, case.partitions) for case in named}
    for case in named:
        assert {NAMED, NAMED_REMOTE, EMBEDDED, REMOTE} <= set(case.subjects)
        assert (GROUP in case.subjects) == (case.kind != "named-commit")


def test_quick_case_is_the_same_but_smaller() -> None:
    for case in CASES:
        small = quick(case)
        assert (small.name, small.subjects) == (case.name, case.subjects)
        assert small.records <= case.records
        assert not case.records or small.records
