"""Writes numbers by a task that fails twice, or by one of which Spark runs two attempts at once.

Usage: `python -m tests.pipelines.sink_attempts_program SERVERS TOPIC FOLDER retry|speculate COUNT`.
Each attempt that gets to the middle of the first split makes a file in the folder.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType

import kledger.spark

SETTINGS = {
    "retry": {"spark.master": "local[2,4]"},
    "speculate": {
        "spark.master": "local-cluster[2,1,1024]", "spark.speculation": "true",
        "spark.speculation.interval": "50ms", "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.3", "spark.speculation.minTaskRuntime": "100ms",
        "spark.executor.memory": "512m",
    },
}  # fmt: skip
MIDDLE = 900
"""By then a task has sent some batches of its records."""
PADDING = 2000 * "x"


def main(servers: str, topic: str, folder: str, how: str, count: str) -> None:
    """Write three splits."""
    builder = SparkSession.builder.config("spark.ui.enabled", "false")
    for key, each in SETTINGS[how].items():
        builder = builder.config(key, each)
    spark = builder.getOrCreate()
    kledger.spark.register(spark)

    def value(number: int) -> str:
        if number == MIDDLE:
            context = TaskContext.get()
            assert context is not None
            attempt = context.attemptNumber()
            (Path(folder) / f"{attempt}").touch()
            if how == "retry" and attempt < 2:
                raise ValueError("planted")
            if how == "speculate" and attempt == 0:
                threading.Event().wait(600)  # until Spark kills it for the quicker one
        return f"{number}-{PADDING}"

    values = spark.range(0, int(count), 1, 3).select(
        f.udf(value, StringType())("id").alias("value")
    )
    writer = values.write.format("kledger").mode("append").option("servers", servers)
    writer.option("topic", topic).save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
