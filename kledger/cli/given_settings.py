"""The settings of a command: from its --config and --set, the environment and its other flags.

Must not know: what a command does with them.
"""

import argparse
import os
from collections.abc import Mapping

from kledger.settings import Settings, load


def given_settings(
    arguments: argparse.Namespace, flags: Mapping[str, object | None] | None = None
) -> Settings:
    """Return what a command was given.

    Args:
        arguments: with the file `config` and the list `assignments`.
        flags: values of its other flags, by own name of the setting; None was not given.

    Raises:
        SettingError: one line about the first mistake.
    """
    return load(
        file=arguments.config,
        environment=os.environ,
        assignments=arguments.assignments,
        flags={name: value for name, value in (flags or {}).items() if value is not None},
    )
