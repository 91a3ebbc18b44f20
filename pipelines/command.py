"""The command `python -m pipelines NAME`: flags, a Spark session, a summary, an exit code.

Rule: 0 when the pipeline ended or SIGTERM stopped a stream, 1 when it failed, 2 for a wrong call.
The summary is on standard output, with --json as its last line; progress is on standard error.
Must not know: what a pipeline does.
"""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Final

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipelines.errors import PipelineFailed, WrongCall
from pipelines.options import StreamOptions, add_flags, read_options
from pipelines.streaming import first_line
from pipelines.topic_source import CONNECTOR

PIPELINES: Final = ("archive", "replay", "windows", "deduplicate", "snapshot")
FAILED, WRONG = 1, 2
_PARTITIONS_MIN: Final = 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a pipeline by its name and flags; return the exit code."""
    modules = {name: import_module(f"pipelines.{name}") for name in PIPELINES}
    given = vars(_parser(modules).parse_args(arguments))
    module, as_json = modules[given.pop("pipeline")], given.pop("json")
    try:
        # Wrong options are reported before Spark takes its seconds to start.
        read_options(module.OPTIONS, given)
        return _run(module, given, as_json=as_json)
    except WrongCall as error:
        print(f"{module.NAME}: {error}", file=sys.stderr)
        return WRONG
    except (ConnectionRefusedError, Py4JNetworkError):
        # A signal to the whole group of processes ends it before the stream is stopped.
        print(f"{module.NAME}: failed: Spark's virtual machine has ended", file=sys.stderr)
        return FAILED
    except (PipelineFailed, PySparkException, Py4JJavaError, OSError) as error:
        print(f"{module.NAME}: failed: {first_line(error)}", file=sys.stderr)
        return FAILED


def _run(module: ModuleType, given: dict[str, object], *, as_json: bool) -> int:
    stop = threading.Event()
    if issubclass(module.OPTIONS, StreamOptions):
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
    spark = start_session(f"kledger {module.NAME}")
    try:
        summary = module.run(spark, given, stop=stop)
    finally:
        spark.stop()
    print(summary.to_json() if as_json else summary.to_text())
    return 0


def start_session(name: str) -> SparkSession:
    """Return the session of `spark-submit`, or a new one on the cores of this machine."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # not below spark-submit, which has settings
        cores = os.cpu_count() or 1
        settings = {
            "spark.master": "local[*]",
            "spark.jars.packages": CONNECTOR,
            "spark.sql.shuffle.partitions": str(max(_PARTITIONS_MIN, cores)),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            # Spark gives a Python worker 15 s to start, which a busy machine may not.
            "spark.python.authenticate.socketTimeout": "120s",
        }
        for key, value in settings.items():
            builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _parser(modules: dict[str, ModuleType]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pipelines")
    commands = parser.add_subparsers(dest="pipeline", required=True, metavar="NAME")
    for name, module in modules.items():
        first = str(module.__doc__).partition("\n")[0].partition(": ")[2]
        command = commands.add_parser(name, help=first, description=first)
        add_flags(command, module.OPTIONS)
        command.add_argument("--json", action="store_true", help="print the summary as JSON")
    return parser
