"""What a pipeline reports at its end.

Rule: numbers are of this run; `offsets` is how far the pipeline is, whichever run got there.
Must not know: Spark.
"""

import dataclasses
import json
from dataclasses import dataclass, field

Offsets = dict[str, dict[str, int]]
"""The next offset to read, by topic and partition, in the form of Spark's kafka source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Rows, offsets and time of one run.

    Attributes:
        rows_in: records that were read.
        rows_out: rows or records that were written.
        bad_records: records that could not be used.
        duration_s: seconds from the call to the end.
    """

    pipeline: str
    rows_in: int = 0
    rows_out: int = 0
    bad_records: int = 0
    offsets: Offsets = field(default_factory=dict)
    duration_s: float = 0.0

    def to_json(self) -> str:
        """Return one line with an object of all fields."""
        return json.dumps(dataclasses.asdict(self))

    def to_text(self) -> str:
        """Return lines of text."""
        reached = ", ".join(
            f"{topic}-{partition}: {offset}"
            for topic, partitions in self.offsets.items()
            for partition, offset in sorted(partitions.items(), key=lambda each: int(each[0]))
        )
        return (
            f"{self.pipeline}: {self.rows_in} rows in, {self.rows_out} rows out, "
            f"{self.bad_records} bad records, {self.duration_s:.1f} s\n"
            f"offsets: {reached or 'none'}"
        )
