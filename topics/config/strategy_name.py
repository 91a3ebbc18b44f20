"""Names of compaction strategies, and which of them a server allows.

Rule: `module:attribute`; compactions import the module of a strategy, so the server's settings list
the modules that may be imported. A package includes the modules in it.
Must not know: whether there is such a module.
"""

import re
from collections.abc import Iterable

from kledger.topics.config.config_values import Allowed, ConfigValue
from kledger.topics.errors import InvalidConfig

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_MODULE = re.compile(rf"{_NAME}(\.{_NAME})*")
_STRATEGY = re.compile(rf"{_MODULE.pattern}:{_NAME}")


def _is_strategy_name(value: ConfigValue) -> bool:
    return isinstance(value, str) and (not value or _STRATEGY.fullmatch(value) is not None)


STRATEGY_NAME = Allowed("empty or module:attribute", _is_strategy_name)


def is_strategy_allowed(name: str, modules: Iterable[str]) -> bool:
    """Whether a server that lists these modules imports a strategy; no strategy is allowed."""
    module = name.partition(":")[0]
    return not name or any(module == each or module.startswith(f"{each}.") for each in modules)


def check_modules(modules: Iterable[str]) -> None:
    """Check the modules that a server lists. Raises InvalidConfig."""
    for each in modules:
        if _MODULE.fullmatch(each) is None:
            raise InvalidConfig(
                f"compaction.strategy.modules: expected names of modules, got {each!r}"
            )


def refusal(name: str, modules: Iterable[str]) -> str:
    """Return the text of the error about a strategy that is not allowed."""
    listed = ", ".join(modules) or "none"
    return (
        f"compaction.strategy: expected a module of the server's compaction.strategy.modules"
        f" ({listed}), got {name}"
    )
