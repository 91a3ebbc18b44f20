"""Parquet files of numbered batches; every reader of the folder sees each batch once.

    FOLDER/date=2026-01-31/batch-000000012-5c1e4a90-00003.parquet
           └ partition       └ batch number └ query  └ file
    FOLDER/_batches/                        what is being written, and the query that writes each
    topic

Rule: a batch is staged below `_batches`, which readers of Parquet folders skip, and then moved file
by file. A run that was cut has moved some of them; the next run of the same batch deletes those
first, so no reader sees a row twice. Must not know: where the rows come from.
"""

import json
import uuid
from typing import Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from pipelines.errors import WrongCall
from pipelines.hadoop_files import HadoopFiles

_STAGING: Final = "_batches"
_TABLE: Final = "table-"
_TABLE_STAGING: Final = "_table"


class BatchFiles:
    """The files that one streaming query writes below a folder."""

    def __init__(
        self, spark: SparkSession, folder: str, *, checkpoint: str, partition_by: tuple[str, ...]
    ) -> None:
        """Prepare; nothing is written yet.

        Args:
            spark: a session.
            folder: where the files go.
            checkpoint: of the query; it holds the query's id as soon as it was started once.
            partition_by: columns that become folders.
        """
        self._files = HadoopFiles(spark, folder)
        self._checkpoints = HadoopFiles(spark, checkpoint)
        self._folder, self._checkpoint = folder.rstrip("/"), checkpoint.rstrip("/")
        self._partition_by = partition_by
        # A driver that was killed may still write for a moment: every run stages apart.
        self._run = uuid.uuid4().hex
        self._is_first = True

    def claim(self, what: str) -> None:
        """Check that no other checkpoint has written the same into the folder.

        Args:
            what: what the query writes, such as the topic; part of a file name.

        Raises:
            WrongCall: one has, so this query would write its rows again.
        """
        path = self._claim_path(what)
        if not self._files.exists(path):
            return
        owner = self._files.read_text(path)
        if owner != self._query_id():
            raise WrongCall(
                f"{self._folder} holds what another checkpoint wrote of {what} (query {owner}); "
                "use that checkpoint, or another folder"
            )

    def write(self, frame: DataFrame, batch: int, *, what: str) -> None:
        """Write a batch; what an earlier attempt wrote of it is replaced."""
        query = self._query_id()
        assert query is not None, "a query has an id before its first batch"
        staging = f"{self._folder}/{_STAGING}/{query}"
        if self._is_first:
            self._files.delete(staging)
            if not self._files.exists(self._claim_path(what)):
                self._files.write_text(self._claim_path(what), query)
        staged = f"{staging}/{self._run}-{batch}"
        count = _write(frame, staged, self._partition_by)
        name = f"batch-{batch:09}-{query[:8]}"
        if self._is_first:
            # Only the first batch after a start can be one that was begun before.
            inside = "/*=*" * len(self._partition_by)
            for path in self._files.listed(f"{self._folder}{inside}/{name}-*"):
                self._files.delete(path)
        if count:
            _publish(self._files, staged, self._folder, name)
        self._files.delete(staged)
        self._is_first = False

    def _claim_path(self, what: str) -> str:
        return f"{self._folder}/{_STAGING}/writer-{what}"

    def _query_id(self) -> str | None:
        path = f"{self._checkpoint}/metadata"
        if not self._checkpoints.exists(path):
            return None
        return str(json.loads(self._checkpoints.read_text(path))["id"])


def check_table_folder(spark: SparkSession, folder: str) -> None:
    """Check that `replace_files` would replace nothing but what it has written.

    Raises:
        WrongCall: the folder holds something else.
    """
    paths = HadoopFiles(spark, folder).listed(f"{folder.rstrip('/')}/*")
    names = (path.rpartition("/")[2] for path in paths)
    others = [name for name in names if not name.startswith(("_", ".", _TABLE))]
    if others:
        raise WrongCall(
            f"{folder} holds {others[0]!r}, expected nothing but the files of a snapshot, which"
            " the new one replaces; use another folder"
        )


def replace_files(spark: SparkSession, frame: DataFrame, folder: str) -> None:
    """Write a frame as the files of a folder, in place of those that it wrote before.

    They are replaced when all new ones are written; between the two a reader sees too few rows, but
    none of both.
    """
    files, folder = HadoopFiles(spark, folder), folder.rstrip("/")
    staging, run = f"{folder}/{_TABLE_STAGING}", uuid.uuid4().hex
    files.delete(staging)  # of a run that was killed
    staged = f"{staging}/{run}"
    _write(frame, staged, ())
    for path in files.listed(f"{folder}/{_TABLE}*.parquet"):
        files.delete(path)
    _publish(files, staged, folder, f"{_TABLE}{run[:8]}")
    files.delete(staging)


def _write(frame: DataFrame, path: str, partition_by: tuple[str, ...]) -> int:
    """Write Parquet files; return how many rows they have."""
    written = Observation()
    counted = frame.observe(written, f.count(f.lit(1)).alias("rows"))
    counted.write.mode("overwrite").partitionBy(*partition_by).parquet(path)
    return int(written.get["rows"])


def _publish(files: HadoopFiles, staged: str, folder: str, name: str) -> None:
    """Move staged files to where readers look, under names that begin with `name`."""
    within = staged.rpartition("/")[2]
    made: set[str] = set()
    found = sorted(path for path in files.below(staged) if path.endswith(".parquet"))
    for number, path in enumerate(found):
        partition = path.partition(f"/{within}/")[2].rpartition("/")[0]
        target = "/".join(filter(None, (folder, partition)))
        if target not in made:
            files.make_folder(target)
            made.add(target)
        files.move(path, f"{target}/{name}-{number:05}.parquet")
