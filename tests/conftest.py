"""What holds for every test: settings of hypothesis, and no settings of the machine."""

import os

import pytest
from hypothesis import HealthCheck, settings

# On a loaded machine an example may take long without being wrong.
settings.register_profile(
    "house", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("thorough", parent=settings.get_profile("house"), max_examples=2_000)
settings.load_profile("thorough" if os.environ.get("HYPOTHESIS_THOROUGH") else "house")


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep settings of the machine's own kledger out of the tests."""
    for variable in [name for name in os.environ if name.startswith("KLEDGER_")]:
        monkeypatch.delenv(variable)
