"""Facts of the machine, read from the kernel's lists."""

from pathlib import Path

from benchmarks.conditions import field, file_system

MOUNTS = """\
/dev/a / ext4 rw,relatime 0 0
tmpfs /data/fast tmpfs rw 0 0
proc /proc proc rw 0 0
"""


def test_deepest_mount_counts() -> None:
    assert file_system(Path("/data/fast/x"), MOUNTS) == "tmpfs (rw)"
    assert file_system(Path("/data/slow"), MOUNTS) == "ext4 (rw)"


def test_field_is_the_first_of_its_name() -> None:
    assert field("model name\t: One\nmodel name\t: Two\n", "model name") == "One"
    assert field("", "model name") == "unknown"
