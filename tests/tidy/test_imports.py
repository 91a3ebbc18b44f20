"""Import rules that need a list of what is allowed; the layers are import-linter's (pyproject)."""

import sys
from pathlib import PurePosixPath

from tests.tidy.sources import (
    PACKAGES,
    PROGRAMS,
    expect_none,
    imported_as_written,
    imported_modules,
    tracked_files,
    violations,
)

# Folders that only import the standard library, these libraries and themselves.
SELF_CONTAINED = {
    "batches": {"crc32c", "cramjam", "batches"},
    "gateway/wire": {"crc32c", "gateway.wire"},
}
# What a client of a running server may import of ours: the public package, and record batches.
OPEN_TO_PROGRAMS = ("kledger", "batches")


# Small benchmarks of one package import it; all others are clients of a running server.
MEASURED_FROM_INSIDE = {
    "benchmarks/codec.py",
    "benchmarks/engine_commit.py",
    "benchmarks/programs/cluster_engine_load.py",
    "benchmarks/programs/cursor_holes.py",
    "benchmarks/programs/ledger_load.py",
    "benchmarks/programs/many_ledgers.py",
    "benchmarks/programs/slow_tier_load.py",
    "benchmarks/programs/tier_load.py",
}

# Requests of every version are written, and any broker's answers read, by the schemas.
OPENED_TO = {"compat_tests/differential": ("gateway.wire",)}

# From the lowest layer up; packages of one layer do not import each other. The same as the contract
# in pyproject, but with imports under TYPE_CHECKING.
LAYERS = (
    {"runtime"},
    {"ledger", "batches"},
    {"topics", "offsets", "security", "subscriptions"},
    {"delivery"},
    {"named_topics"},
    {"gateway", "native"},
    {"kledger"},
)


def is_within(module: str, package: str) -> bool:
    """Return whether a module is that package or below it."""
    return module == package or module.startswith(package + ".")


def foreign_imports(path: PurePosixPath, text: str) -> list[str]:
    """Find imports of a self-contained folder that are not allowed."""
    for folder, allowed in SELF_CONTAINED.items():
        if path.is_relative_to(folder):
            return [
                f"imports {module}"
                for module in sorted(imported_modules(text))
                if module.partition(".")[0] not in sys.stdlib_module_names
                and not any(is_within(module, each) for each in allowed)
            ]
    return []


def imports_behind_the_face(path: PurePosixPath, text: str) -> list[str]:
    """Find imports of the ledger's inside.

    No package imports an engine; only the command line may look into stopped stores.
    """
    if path.parts[0] == "ledger":
        return []
    allowed = ["ledger.testing", "ledger.row_format", "ledger.record_table", "ledger.shared_tables"]
    if path.parts[:2] == ("kledger", "cli"):
        allowed += ["ledger.inspection", "ledger.cluster"]
    has_no_disk = path.name in {"cluster_broker.py", "cluster_owner.py", "cluster_settings.py"}
    if has_no_disk or path.parts[:2] == ("kledger", "nodes"):
        allowed += ["ledger.cluster"]
    if path.parts[:2] == ("kledger", "spark"):
        allowed += ["ledger.offload.object_layout", "ledger.offload.object_store_options"]
    return [
        f"imports {module}"
        for module in sorted(imported_modules(text))
        if module.startswith("ledger.")
        and not any(is_within(module, each) for each in allowed)
        # `from ledger import Position` is allowed: a class or a function, not a module.
        and (module.count(".") > 1 or is_ledger_module(module))
    ]


def is_ledger_module(module: str) -> bool:
    """Return whether the name is a module of ledger/, not one of its public names."""
    name = module.split(".")[1]
    return any(
        path.parts[:2] in {("ledger", name), ("ledger", f"{name}.py")} for path in tracked_files()
    )


def upward_imports(path: PurePosixPath, text: str) -> list[str]:
    """Find imports of a higher layer, or of another package of the same one."""
    height = {package: level for level, layer in enumerate(LAYERS) for package in layer}
    own = path.parts[0]
    return [
        f"imports {module}"
        for module in sorted(imported_modules(text))
        if (package := module.partition(".")[0]) != own
        and package in height
        and height[package] >= height[own]
    ]


def server_imports(path: PurePosixPath, text: str) -> list[str]:
    """Find imports of the server's packages in programs that are its clients."""
    if str(path) in MEASURED_FROM_INSIDE:
        return []
    opened = OPENED_TO.get(str(path.parent), ())
    closed = [package for package in PACKAGES if package not in OPEN_TO_PROGRAMS]
    return [
        f"imports {module}"
        for module in sorted(imported_modules(text))
        if any(is_within(module, package) for package in closed)
        and not any(is_within(module, each) for each in opened)
    ]


def bare_packages(path: PurePosixPath, text: str) -> list[str]:
    """Find imports of our packages by their bare names, which belong to other people's code."""
    return [
        f"imports {module}, expected kledger.{module}"
        for module in sorted(imported_as_written(text))
        if (package := module.partition(".")[0]) in PACKAGES and package != "kledger"
    ]


def test_only_kledger_is_imported() -> None:
    expect_none(violations(bare_packages))


def test_planted_bare_name_is_found() -> None:
    planted = PurePosixPath("topics/x.py")
    assert ["imports ledger.Position, expected kledger.ledger.Position"] == bare_packages(
        planted, "from ledger import Position"
    )
    assert [] == bare_packages(planted, "import kledger.ledger, ledgers")


def test_self_contained_folders_import_nothing_of_ours() -> None:
    expect_none(violations(foreign_imports))


def test_imports_only_go_down() -> None:
    expect_none(violations(upward_imports, *PACKAGES))


def test_ledger_is_entered_by_its_face() -> None:
    expect_none(violations(imports_behind_the_face, *PACKAGES))


def test_programs_are_clients() -> None:
    expect_none(violations(server_imports, *PROGRAMS))


def test_planted_import_into_a_self_contained_folder_is_found() -> None:
    planted = PurePosixPath("gateway/wire/x.py")
    assert ["imports batches.header"] == foreign_imports(planted, "import batches.header")
    assert ["imports gateway.net.router"] == foreign_imports(planted, "import gateway.net.router")
    assert ["imports uvloop"] == foreign_imports(PurePosixPath("batches/x.py"), "import uvloop")
    assert [] == foreign_imports(planted, "import struct, crc32c\nimport gateway.wire.codec")


def test_planted_import_upwards_or_sideways_is_found() -> None:
    planted = PurePosixPath("topics/x.py")
    assert ["imports gateway.config"] == upward_imports(planted, "import gateway.config")
    assert ["imports offsets.store"] == upward_imports(
        planted, "if TYPE_CHECKING:\n    import offsets.store"
    )
    assert [] == upward_imports(planted, "import topics.y, ledger, runtime.clock, batches.header")


def test_planted_import_behind_the_face_is_found() -> None:
    planted, wiring = PurePosixPath("topics/x.py"), PurePosixPath("kledger/wiring.py")
    for source, found in (
        ("from ledger.engine.memory import MemoryEngine", "ledger.engine.memory.MemoryEngine"),
        ("from ledger.store import LedgerStore", "ledger.store.LedgerStore"),
    ):
        assert [f"imports {found}"] == imports_behind_the_face(planted, source)
        assert [f"imports {found}"] == imports_behind_the_face(wiring, source)
    assert [] == imports_behind_the_face(planted, "from ledger import Position")
    looking = "from ledger.inspection import inspect_folder"
    assert [] == imports_behind_the_face(PurePosixPath("kledger/cli/x.py"), looking)
    for other in (planted, wiring, PurePosixPath("kledger/testing.py")):
        assert ["imports ledger.inspection.inspect_folder"] == imports_behind_the_face(
            other, looking
        )


def test_planted_import_of_a_package_by_a_program_is_found() -> None:
    planted = PurePosixPath("pipelines/x.py")
    assert ["imports topics.registry"] == server_imports(planted, "import topics.registry")
    assert [] == server_imports(planted, "import kledger.testing, batches.reader, pandas")
