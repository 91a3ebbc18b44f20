"""A seed replays; the machine's randomness does not."""

import base64

from kledger.runtime.entropy import Entropy, SeededEntropy, SystemEntropy


def drawn(entropy: Entropy) -> tuple[bytes, str, int]:
    return entropy.token(8), str(entropy.uuid4()), entropy.below(1_000_000)


def test_same_seed_gives_the_same_values() -> None:
    assert drawn(SeededEntropy(3)) == drawn(SeededEntropy(3))
    assert drawn(SeededEntropy(3)) != drawn(SeededEntropy(4))


def test_system_entropy_does_not_repeat() -> None:
    assert drawn(SystemEntropy()) != drawn(SystemEntropy())


def test_values_have_the_asked_shape() -> None:
    for entropy in (SeededEntropy(1), SystemEntropy()):
        assert 5 == len(entropy.token(5))
        assert 4 == entropy.uuid4().version
        assert 0 == entropy.below(1)


def test_ids_are_no_options_of_commands() -> None:
    """`kledger client-metrics show -XYZ...` failed for one instance in 64."""
    for entropy in (SeededEntropy(1), SystemEntropy()):
        texts = (base64.urlsafe_b64encode(entropy.uuid4().bytes) for _ in range(1_000))
        assert not [each for each in texts if each.startswith(b"-")]
