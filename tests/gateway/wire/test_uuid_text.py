"""Ids as text; the pair below is from Apache Kafka."""

from uuid import UUID

import pytest

from kledger.gateway.wire.uuid_text import uuid_from_text, uuid_text

TEXT = "8SNFZ4mrze-BI0VniavN7w"
ID = UUID("f1234567-89ab-cdef-8123-456789abcdef")


def test_ids_are_written_and_read() -> None:
    assert TEXT == uuid_text(ID)
    assert ID == uuid_from_text(TEXT)
    assert "AAAAAAAAAAAAAAAAAAAAAA" == uuid_text(UUID(int=0))
    assert "_" * 21 + "w" == uuid_text(UUID(int=2**128 - 1))
    assert UUID(int=2**128 - 1) == uuid_from_text("_" * 21 + "w")


@pytest.mark.parametrize(
    "text",
    [
        "", TEXT[:-1], f"{TEXT}=", f"{TEXT}==", f"{TEXT}A", f" {TEXT}", TEXT.replace("-", "+"),
        f"{TEXT[:-1]}x", "ä" * 22, str(ID),
    ],
)  # fmt: skip
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected an id of 22 characters"):
        uuid_from_text(text)
