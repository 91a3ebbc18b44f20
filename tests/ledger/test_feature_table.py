"""Which test shows which promise of the managed ledger, and which old mistake of others.

The rows are what Pulsar's managed ledger promises, its cursors as far as they need no consumers,
and mistakes that it once had; a test that is renamed or removed must be followed here.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

FEATURES = """
Ordering of adds
    ledger/handle/test_managed_ledger.py
        test_a_thousand_concurrent_adds_keep_their_order
    ledger/test_states.py
        test_appends_and_resent_adds_complete_in_order
    ledger/test_rollover.py
        test_appends_during_a_rollover_are_accepted_at_once_and_confirmed_in_order
LAC
    ledger/test_crash.py
        test_a_power_cut_at_every_operation
    ledger/test_random_reads.py
        test_20_000_random_reads_equal_a_list
    ledger/test_cursorless_read.py
        test_rule_4_unconfirmed_entries_are_not_returned
    ledger/test_trim.py
        test_a_log_without_entries_continues_after_its_last_position
Rollover
    ledger/test_rollover.py
        test_the_entry_that_reaches_a_limit_is_in_the_old_ledger
    ledger/handle/test_managed_ledger.py
        test_a_timer_rolls_a_ledger_that_is_old
        test_a_minimum_age_delays_rollover
    ledger/test_rollover.py
        test_an_inactive_ledger_is_rolled_and_an_active_one_is_not
        test_nothing_rolls_while_the_storage_fails
    ledger/handle/test_write_tail_state.py
        test_the_timer_is_spread_by_up_to_five_percent
Eager next ledger, no empty ledgers left
    ledger/handle/test_managed_ledger.py
        test_the_next_ledger_is_created_eagerly
    ledger/test_store.py
        test_reopening_without_writing_leaves_one_ledger
    ledger/test_rollover.py
        test_an_empty_ledger_that_lost_its_appends_leaves_the_list
CAS/fencing
    ledger/test_ownership.py
        test_a_stale_owner_changes_nothing_and_acknowledges_nothing
        test_a_newer_version_fences_a_handle_without_it
        test_a_folder_of_another_process_is_refused_until_that_has_ended
    ledger/test_managed_ledger_changes.py
        test_a_newer_handle_fences_an_older_one
Recovery
    ledger/test_store.py
        test_acknowledged_entries_survive_a_crash
    ledger/test_recovery.py
        test_an_open_ledger_is_counted_from_its_mark_on
next_valid / previous / is_valid
    ledger/metadata/test_ledger_list_state.py
        test_positions_are_as_the_rules_say_in_every_small_list
        test_positions_without_entries_between_them_are_the_same_progress
Trim
    ledger/test_trim.py
        test_every_age_size_and_boundary
    ledger/metadata/test_retention_plan.py
        test_every_combination_follows_the_rule
    topics/test_log_start.py
        test_every_age_size_and_log_start_before_and_after_a_restart
Delete order
    ledger/test_trim.py
        test_a_power_cut_at_every_step_tears_nothing
        test_a_power_cut_on_disk_leaves_nothing_for_the_doctor
Cursorless read
    ledger/test_cursorless_read.py
        test_rule_1_a_count_must_be_a_positive_number
        test_rule_2_a_trimmed_start_continues_at_the_next_entry
        test_rule_3_an_end_that_is_trimmed_leaves_nothing
        test_rule_4_ledgers_trimmed_meanwhile_are_skipped_or_were_read_before
        test_rule_5_a_read_at_the_end_returns_at_once
        test_rule_6_what_was_read_before_a_failure_is_the_answer_and_the_read_stops
        test_rule_7_nothing_is_pinned
    ledger/test_ledger_reader.py
        test_every_start_count_and_end_reads_what_a_list_would
    ledger/test_random_reads.py
        test_1_000_000_random_reads_equal_a_list
    tidy/test_cursorless.py
        test_a_fetch_reads_without_a_cursor
find newest
    ledger/reads/test_entry_search.py
        test_find_newest_equals_a_linear_scan
        test_any_log_is_searched_as_a_scan_would
        test_find_newest_in_a_trimmed_log
Backlog
    ledger/cursors/test_cursor_machine.py
        equals_the_sets
    ledger/metadata/test_ledger_list_state.py
        test_counts_equal_a_linear_count
    ledger/test_random_reads.py
        test_20_000_random_reads_equal_a_list
Terminate
    ledger/test_managed_ledger_changes.py
        test_terminate_is_final_and_keeps_what_was_appended
        test_listeners_are_called_after_a_termination
    ledger/test_trim.py
        test_a_terminated_log_keeps_its_end_when_its_ledgers_are_deleted
Properties
    ledger/test_managed_ledger_changes.py
        test_properties_are_durable_and_can_be_deleted
    ledger/test_ownership.py
        test_a_newer_version_fences_a_handle_without_it
Cache
    ledger/test_random_reads.py
        test_20_000_random_reads_equal_a_list
    ledger/test_trim.py
        test_readers_and_cache_follow_a_trim
    ledger/test_ledger_reader.py
        test_a_partial_hit_reads_only_what_is_missing
"""

CURSORS = """
md monotonic, holes merge
    ledger/cursors/test_cursor_state.py
        test_every_set_of_acknowledged_entries_in_two_steps_equals_plain_sets
        test_the_mark_delete_position_swallows_holes_across_ledgers
    ledger/cursors/test_cursor_machine.py
        equals_the_sets
Durable acks
    ledger/cursors/test_cursor.py
        test_what_was_acknowledged_survives_a_power_cut
        test_a_call_that_returned_is_durable_and_one_that_failed_is_repeated
        test_acknowledgements_of_one_tick_share_a_sync
    ledger/cursors/test_cursor_writer.py
        test_the_pace_lets_calls_return_before_they_are_durable
        test_a_damaged_row_is_replaced_by_the_previous_one
        test_above_the_limit_the_highest_are_redelivered_with_a_warning
        test_trimming_follows_durable_acknowledgements_only
Batch index
    ledger/cursors/test_cursor_state.py
        test_a_batch_is_unacknowledged_until_its_last_index
    ledger/cursors/test_cursor.py
        test_what_was_acknowledged_survives_a_power_cut
        test_a_clean_close_keeps_everything_in_the_snapshot
    ledger/cursors/test_cursor_writer.py
        test_a_cursor_with_many_ranges_keeps_its_progress_row_when_closed
Waiting read
    ledger/cursors/test_cursor_reads.py
        test_no_wake_up_is_lost_whenever_an_entry_is_appended
        test_one_read_waits_and_can_be_cancelled
        test_a_waiting_read_ends_when_nothing_more_can_come
Reset
    ledger/cursors/test_cursor_state.py
        test_a_reset_has_these_targets
    ledger/cursors/test_cursor.py
        test_a_reset_is_durable_first_and_one_at_a_time
        test_a_reset_that_was_not_written_changes_nothing
        test_acknowledgements_before_a_reset_return_and_have_no_effect
        test_a_reset_to_a_time_goes_after_the_newest_older_entry
    ledger/cursors/test_cursor_revisions.py
        test_a_reset_into_a_batch_acknowledges_its_first_records_in_the_same_step
        test_what_goes_along_with_a_revision_is_true_in_the_same_step
Revision
    ledger/cursors/test_cursor_revision_state.py
        test_a_revision_sets_both_positions_and_counts
        test_one_revision_at_a_time
        test_an_editor_that_raises_has_set_nothing_and_the_revision_is_over
    ledger/cursors/test_cursor.py
        test_a_late_acknowledgement_of_an_older_revision_does_nothing
    ledger/cursors/test_cursor_races.py
        test_the_controller_keeps_the_rule_in_every_interleaving
        test_without_the_controller_the_rule_is_broken
Non-durable
    ledger/cursors/test_cursor_registry.py
        test_a_non_durable_cursor_begins_after_its_start
        test_a_cursor_that_is_not_durable_costs_no_write_and_holds_back_nothing
Metrics/stats
    ledger/cursors/test_cursor_metrics.py
        test_revisions_are_counted_and_shown_while_they_run
    ledger/cursors/test_cursor.py
        test_stats_show_the_revision
"""

TIERED_STORAGE = """
Prefix offload
    ledger/offload/test_prefix_offload.py
        test_prefix_offload_copies_closed_ledgers_and_returns_the_first_position_without_copy
        test_prefix_offload_refuses_invalid_positions
        test_prefix_offload_takes_the_first_position_of_an_empty_open_ledger
        test_prefix_offload_runs_once_at_a_time
        test_prefix_offload_continues_after_a_failure_and_reports_the_first
        test_prefix_offload_skips_a_ledger_that_is_trimmed_meanwhile
        test_prefix_offload_ends_cleanly_when_it_is_cancelled
Two-phase + uuid
    ledger/offload/test_two_phases.py
        test_two_phases_a_crash_leaves_the_old_state_and_the_objects_go
        test_two_phases_a_crash_after_the_completion_keeps_the_copy
        test_two_phases_a_failed_copy_is_deleted_and_a_retry_completes
        test_two_phases_no_object_is_deleted_while_the_outcome_of_its_completion_is_open
        test_two_phases_an_attempt_that_was_replaced_is_not_completed
    simulation/test_mistakes.py
        test_a_planted_mistake_is_caught
Read choice
    ledger/offload/test_read_choice.py
        test_read_choice_without_a_copy_is_the_primary
        test_read_choice_tiered_first_is_the_tier
        test_read_choice_bookkeeper_first_never_touches_the_tier_while_the_primary_is_there
        test_read_choice_after_the_deletion_of_the_primary_is_the_tier_directly
        test_read_choice_falls_back_to_the_primary_when_the_tier_fails
        test_read_choice_changes_at_once_for_an_open_handle
        test_read_choice_holds_for_every_way_to_read
Deletion lag
    ledger/offload/test_deletion.py
        test_deletion_lag_is_compared_strictly
        test_deletion_lag_none_or_negative_is_never
        test_deletion_of_primaries_survives_a_crash
Equality of copies
    ledger/offload/test_read_choice.py
        test_equality_of_copies_holds_for_bytes_positions_and_the_end
Trim of offloaded
    ledger/offload/test_deletion.py
        test_trim_of_offloaded_deletes_both_copies
        test_trim_of_offloaded_while_it_is_copied_leaves_nothing
        test_deleting_a_managed_ledger_deletes_all_copies_and_broken_attempts
        test_deleting_leaves_what_a_managed_ledger_of_the_same_name_made_anew
Auto thresholds
    ledger/offload/test_offload_plan.py
        test_auto_thresholds_by_bytes
        test_auto_thresholds_by_age
        test_auto_thresholds_copy_the_oldest_first
Failure isolation
    ledger/offload/test_failure_isolation.py
        test_failure_isolation_appends_tail_reads_and_primary_reads_go_on_while_a_tier_hangs
        test_failure_isolation_closing_does_not_wait_for_a_tier_that_hangs
"""

OLD_MISTAKES = """
#8284 reading an empty current ledger loops
    ledger/test_ledger_reader.py
        test_a_read_of_nothing_but_an_empty_ledger_ends
#14667 a read position behind the end loops
    ledger/test_cursorless_read.py
        test_rule_3_a_start_after_the_end_is_the_end
#24515 a read never completes when the cache returns nothing
    ledger/test_cursorless_read.py
        test_an_empty_answer_for_a_range_with_entries_ends_the_read
#24855 negative backlog behind a trim
    ledger/metadata/test_ledger_list_state.py
        test_counts_equal_a_linear_count
    ledger/test_random_reads.py
        test_20_000_random_reads_equal_a_list
#20898 deletion with a gap
    ledger/metadata/test_retention_plan.py
        test_deletion_stops_at_the_first_that_must_stay
#23951 wrong backlog of one that starts in the middle
    ledger/test_random_reads.py
        test_20_000_random_reads_equal_a_list
KoP #1641 #1737 wrong log start after retention
    topics/test_log_start.py
        test_every_age_size_and_log_start_before_and_after_a_restart
KoP #1512 a failed write moves the end
    topics/partition/test_partition_log.py
        test_failed_appends_consume_no_offset_and_no_sequence
"""


def rows_of(table: str) -> dict[str, list[tuple[str, str]]]:
    """Read a table: a row, below it the files, below them the tests."""
    rows: dict[str, list[tuple[str, str]]] = {}
    row = file = ""
    for line in table.strip().splitlines():
        name = line.strip()
        match len(line) - len(name):
            case 0:
                row = name
                rows[row] = []
            case 4:
                file = name
            case _:
                rows[row].append((file, name))
    return rows


@cache
def names_in(file: str) -> set[str]:
    """Return the names of all functions of a file."""
    tree = ast.parse((TESTS / file).read_text("utf-8"))
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    return {node.name for node in ast.walk(tree) if isinstance(node, functions)}


ROWS = {**rows_of(FEATURES), **rows_of(CURSORS), **rows_of(TIERED_STORAGE), **rows_of(OLD_MISTAKES)}


@pytest.mark.parametrize("row", ROWS)
def test_every_row_has_tests_that_exist(row: str) -> None:
    assert ROWS[row]
    assert [] == [(file, name) for file, name in ROWS[row] if name not in names_in(file)]


def test_no_row_is_missing() -> None:
    tables = (FEATURES, CURSORS, TIERED_STORAGE, OLD_MISTAKES)
    assert [15, 8, 8, 8] == [len(rows_of(table)) for table in tables]
