"""The command `kledger`, also as `python -P -m kledger`."""

import sys


def main() -> None:
    """Run the command line and leave with its exit code."""
    from kledger import quick_start

    if sys.argv[1:2] == ["serve"]:
        quick_start.prepare()
    from kledger.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
