"""Writes numbers in three splits; the task of the first one fails twice in its middle.

Usage: `python -m tests.pipelines.sink_attempts_program SERVERS TOPIC FOLDER COUNT`. Each attempt
that gets to the middle makes a file in the folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType

import kledger.spark

MIDDLE = 900
"""By then a task has sent some batches of its records."""
PADDING = 2000 * "x"


def main(servers: str, topic: str, folder: str, count: str) -> None:
    """Write; a session of `local[2,4]` retries a task three times."""
    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    kledger.spark.register(spark)

    def value(number: int) -> str:
        if number == MIDDLE:
            context = TaskContext.get()
            assert context is not None
            attempt = context.attemptNumber()
            (Path(folder) / f"{attempt}").touch()
            if attempt < 2:
                raise ValueError("planted")
        return f"{number}-{PADDING}"

    values = spark.range(0, int(count), 1, 3).select(
        f.udf(value, StringType())("id").alias("value")
    )
    writer = values.write.format("kledger").mode("append").option("servers", servers)
    writer.option("topic", topic).save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
