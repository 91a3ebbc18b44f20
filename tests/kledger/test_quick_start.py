"""`quick_start` changes the time of a start and nothing else."""

import subprocess
import sys


def run(code: str) -> list[str]:
    """Run code in a process of its own, because `prepare` changes the whole process."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.split()


def test_checksum_is_equal_and_nothing_else_is_loaded() -> None:
    assert ["0xe3069283", "False"] == run(
        "from kledger.quick_start import prepare; prepare()\n"
        "from crc32c import crc32c\n"
        "import sys; print(hex(crc32c(memoryview(b'123456789'))), 'email' in sys.modules)"
    )


def test_loaded_package_is_not_replaced() -> None:
    assert ["True"] == run(
        "import crc32c; from kledger.quick_start import prepare; prepare()\n"
        "import sys; print(sys.modules['crc32c'] is crc32c and hasattr(crc32c, 'CRC32CHash'))"
    )


def test_package_with_other_contents_is_imported_as_usual() -> None:
    assert ["True"] == run(
        "import kledger.quick_start as q, sys\n"
        "def broken(name): raise ImportError(name)\n"
        "q.import_module = broken; q.prepare()\n"
        "import crc32c; print(hasattr(crc32c, 'CRC32CHash'))"
    )


def test_collector_runs_again_after_objects_are_frozen() -> None:
    assert ["False", "True", "(700,", "5,", "5)"] == run(
        "import gc, kledger.quick_start as q\n"
        "q.prepare(); print(gc.isenabled())\n"
        "q.freeze_objects((700, 5, 5)); print(gc.isenabled(), gc.get_threshold())"
    )
