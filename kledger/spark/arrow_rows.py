"""Columns of records as rows of `format("kledger")`.

Rule: names, order and types are those of `data_source.source_schema`.
Must not know: brokers, tiers.
"""

from typing import Final

import pyarrow as pa

from kledger.spark.offset_range import KafkaPartition
from kledger.spark.record_columns import Int64s, RecordColumns, int_column

TIMESTAMP_TYPE: Final = pa.timestamp("us", tz="UTC")
_MICROSECONDS: Final = 1000


def arrow_rows(
    where: KafkaPartition,
    columns: RecordColumns,
    *,
    ledger_id: int | None = None,
    entry_id: Int64s | None = None,
) -> pa.RecordBatch:
    """Return the rows of some records of a partition.

    Args:
        where: the partition.
        columns: the records; without headers the rows have no such column.
        ledger_id: where the records are stored, None if that is not known.
        entry_id: for each record, in the same case.
    """
    count = len(columns.offset)
    found: dict[str, pa.Array] = {
        "key": columns.key,
        "value": columns.value,
        "topic": pa.repeat(pa.scalar(where.topic), count),
        "partition": pa.repeat(pa.scalar(where.partition, pa.int32()), count),
        "offset": int_column(columns.offset),
        "timestamp": int_column(columns.timestamp_ms * _MICROSECONDS).cast(TIMESTAMP_TYPE),
        "timestampType": int_column(columns.timestamp_type),
    }
    if columns.headers is not None:
        found["headers"] = columns.headers
    unknown = pa.nulls(count, pa.int64())
    known = ledger_id is not None and entry_id is not None
    found["ledger_id"] = pa.repeat(pa.scalar(ledger_id, pa.int64()), count) if known else unknown
    found["entry_id"] = unknown if entry_id is None else int_column(entry_id)
    found["batch_index"] = int_column(columns.batch_index)
    return pa.RecordBatch.from_arrays(list(found.values()), names=list(found))
