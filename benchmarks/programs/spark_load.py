"""Load by Spark: one session, which runs the queries that standard input asks for, one by one.

A line of input is an object with `format`, `options` of the source, `query` and `folder`; the
answer is a line with `seconds`, from loading to the end of the query, and its `result`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import kledger.spark
from pipelines.topic_source import CONNECTOR

Query = Callable[[DataFrame, str], int]


def session() -> SparkSession:
    """Start Spark on two cores."""
    settings = {
        "spark.jars.packages": CONNECTOR, "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false", "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1", "spark.driver.memory": "2g",
    }  # fmt: skip
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    kledger.spark.register(spark)
    return spark


def count(records: DataFrame, folder: str) -> int:
    """Count the records."""
    return records.count()


def json_sum(records: DataFrame, folder: str) -> int:
    """Add up a field of the values."""
    amount = f.get_json_object(f.col("value").cast("string"), "$.amount").cast("long")
    row = records.agg(f.sum(amount)).first()
    assert row is not None, "an aggregate has one row"
    return int(row[0])


def parquet(records: DataFrame, folder: str) -> int:
    """Write the records to Parquet; return how many bytes that made."""
    columns = ("key", "value", "topic", "partition", "offset", "timestamp")
    records.select(*columns).write.mode("overwrite").parquet(folder)
    return sum(path.stat().st_size for path in Path(folder).glob("*.parquet"))


QUERIES: dict[str, Query] = {"count": count, "json": json_sum, "parquet": parquet}


def main() -> None:
    """Answer until the input ends."""
    # The virtual machine prints what it resolves; only answers go to standard output.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    spark = session()
    for line in sys.stdin:
        asked = json.loads(line)
        begun = time.perf_counter()
        records = spark.read.format(asked["format"]).options(**asked["options"]).load()
        result = QUERIES[asked["query"]](records, asked["folder"])
        seconds = time.perf_counter() - begun
        shutil.rmtree(asked["folder"], ignore_errors=True)
        print(json.dumps({"seconds": seconds, "result": result}), file=answers, flush=True)


if __name__ == "__main__":
    main()
