"""Parquet files of numbered batches, each of which is there once, whoever reads the folder.

    FOLDER/date=2026-01-31/batch-000000012-5c1e4a90-00003.parquet
           └ partition       └ batch number └ query  └ file
    FOLDER/_batches/                        what is being written, and who writes which topic

Rule: a batch is staged below `_batches`, which readers of Parquet folders skip, and then moved file
by file. A run that was cut has moved some of them; the next run of the same batch deletes those
first, so no reader sees a row twice. Must not know: where the rows come from.
"""

import json
import uuid
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from pipelines.errors import WrongCall
from pipelines.hadoop_files import HadoopFiles

_STAGING: Final = "_batches"


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
        path = f"{self._folder}/{_STAGING}/writer-{what}"
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
            self._files.write_text(f"{self._folder}/{_STAGING}/writer-{what}", query)
        staged = f"{staging}/{self._run}-{batch}"
        frame.write.mode("overwrite").partitionBy(*self._partition_by).parquet(staged)
        name = f"batch-{batch:09}-{query[:8]}"
        if self._is_first:
            # Only the first batch after a start can be one that was begun before.
            for path in self._files.listed(
                self._folder + "/*=*" * len(self._partition_by) + f"/{name}-*"
            ):
                self._files.delete(path)
        self._publish(staged, name)
        self._files.delete(staged)
        self._is_first = False

    def _publish(self, staged: str, name: str) -> None:
        found = [path for path in self._files.below(staged) if path.endswith(".parquet")]
        made: set[str] = set()
        for number, path in enumerate(sorted(found)):
            inside = path.partition(f"/{_STAGING}/")[2].split("/")[2:-1]
            folder = "/".join([self._folder, *inside])
            if folder not in made:
                self._files.make_folder(folder)
                made.add(folder)
            self._files.move(path, f"{folder}/{name}-{number:05}.parquet")

    def _query_id(self) -> str | None:
        path = f"{self._checkpoint}/metadata"
        if not self._checkpoints.exists(path):
            return None
        return str(json.loads(self._checkpoints.read_text(path))["id"])
