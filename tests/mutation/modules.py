"""What is measured: ten core modules and more, each with the tests that are asked about it.

Rule: the tests of a module's own file come first; others are named only where they run through the
module and end in a few seconds.
"""

from pathlib import Path

MODULES: dict[str, tuple[str, ...]] = {
    "batches/header": (
        "tests/batches/test_reader.py",
        "tests/batches/test_builder.py",
        "tests/batches/test_validation.py",
    ),
    "gateway/coordinator/classic/classic_group_state": (
        "tests/gateway/coordinator/classic/test_classic_group_state_join.py",
        "tests/gateway/coordinator/classic/test_classic_group_state_sync.py",
        "tests/gateway/coordinator/classic/test_classic_member_state.py",
        "tests/gateway/coordinator/classic/test_classic_group_state_writes.py",
    ),
    "gateway/coordinator/transactions/txn_state": (
        "tests/gateway/coordinator/test_transaction_faults.py",
    ),
    "gateway/fetch/fetch_plan": (),
    "ledger/cursors/cursor_state": (
        "tests/ledger/cursors/test_cursor.py",
        "tests/ledger/cursors/test_cursor_machine.py",
    ),
    "ledger/cursors/cursor_writer": ("tests/ledger/cursors/test_cursor.py",),
    "ledger/metadata/ledger_list_state": (
        "tests/ledger/handle/test_managed_ledger.py",
        "tests/ledger/test_managed_ledger_machine.py",
    ),
    "ledger/handle/write_tail_state": (
        "tests/ledger/test_rollover.py",
        "tests/ledger/handle/test_rollover_timer.py",
    ),
    "native/rpc/delivery_window_state": (),
    "offsets/offsets_state": ("tests/offsets/test_store.py",),
    "subscriptions/dispatch/multiple_consumers_state": (
        "tests/subscriptions/dispatch/test_shared_state.py",
        "tests/subscriptions/dispatch/test_key_shared_state.py",
        "tests/subscriptions/test_subscription_machine.py",
    ),
    "topics/partition/partition_state": ("tests/topics/test_partition_log_machine.py",),
    "topics/partition/producer_state": ("tests/topics/test_partition_log_machine.py",),
}


def module_path(root: Path, name: str) -> str:
    """Return the file of `topics.x`, `kledger.topics.x`, `topics/x` or `topics/x.py`, from root.

    Raises:
        FileNotFoundError: there is no such module.
    """
    stem = room_stem(name)
    for path in (f"kledger/{stem}.py", f"{stem}.py"):
        if (root / path).is_file():
            return path
    raise FileNotFoundError(f"no module {stem}.py below {root.name}")


def room_stem(name: str) -> str:
    """Return `topics/x` for each way to write it."""
    return name.removesuffix(".py").replace(".", "/").removeprefix("kledger/")


def chosen_tests(root: Path, name: str) -> list[str]:
    """Return a module's own test, or the folder that tests it, and then the others of the list."""
    stem = room_stem(name)
    folder, _, module = f"tests/{stem}".rpartition("/")
    own = f"{folder}/test_{module}.py"
    return [own if (root / own).is_file() else folder, *MODULES.get(stem, ())]
