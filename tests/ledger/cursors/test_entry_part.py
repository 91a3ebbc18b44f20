"""Indexes must be within their batch."""

from collections.abc import Collection

import pytest

from kledger.ledger import EntryPart, InvalidArgument
from tests.ledger.words import pos


@pytest.mark.parametrize(("indexes", "size"), [(None, 0), ([], 1), ([0, 3], 4), ({2}, 3)])
def test_a_part_of_its_batch_is_taken(indexes: Collection[int] | None, size: int) -> None:
    EntryPart(pos("3:1"), indexes, size).check()


@pytest.mark.parametrize(("indexes", "size"), [([0], 0), ([4], 4), ([-1, 0], 4), ([0], -1)])
def test_an_index_outside_is_refused(indexes: Collection[int], size: int) -> None:
    with pytest.raises(InvalidArgument, match="indexes: expected 0 to"):
        EntryPart(pos("3:1"), indexes, size).check()
