"""A program of Spark Connect: reads a topic by both sources, and writes to another one.

Spark's server runs in a virtual machine, of which the client sees only the gRPC port. Usage:
`python -m compat_tests.spark_connect_app BOOTSTRAP SOURCE TARGET`.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

import kledger.spark
from compat_tests.peers import SPARK_CONNECTOR


def main(bootstrap: str, source: str, target: str) -> None:
    """Print how many records each source has read, and whether the client is one of Connect."""
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.jars.packages", SPARK_CONNECTOR)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    kledger.spark.register(spark)
    counts = {}
    for name in ("kafka", "kledger"):
        reader = spark.read.format(name).option("kafka.bootstrap.servers", bootstrap)
        records = reader.option("subscribe", source).load()
        counts[name] = records.groupBy("partition").count().orderBy("partition").collect()
        writer = records.where("partition = 0").select("key", "value").write.format(name)
        writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", target)
        writer.mode("append").save()
    found = {name: [row["count"] for row in rows] for name, rows in counts.items()}
    is_remote = type(spark).__module__.startswith("pyspark.sql.connect")
    spark.stop()
    sys.stdout.write(json.dumps({"counts": found, "is_remote": is_remote}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
