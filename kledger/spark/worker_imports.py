"""What a Python worker of Spark need not do again before each task.

Rule: only what Spark's own archives and JARs have in the import system is touched; they do not
change while a worker lives. Must not know: tasks.

A worker calls `importlib.invalidate_caches` before each task. In Python 3.11 every finder of an
archive then reads the directory of the whole archive. A worker has one for each folder of
`pyspark.zip` and for each JAR of the session, which Spark adds to the path: half a second of CPU
time for each task, as long as it takes to decode 300 MB.
Source: CPython's gh-103200, which makes later versions read it when the finder is used.
"""

import sys
from pathlib import PurePath
from zipimport import zipimporter


def drop_finders_of_spark() -> None:
    """Forget finders of Spark's archives and JARs; Python makes one again when it imports."""
    for path, finder in [*sys.path_importer_cache.items()]:
        if isinstance(finder, zipimporter) and _is_of_spark(finder.archive):
            sys.path_importer_cache.pop(path, None)


def _is_of_spark(archive: str) -> bool:
    name = PurePath(archive).name
    is_python = name == "pyspark.zip" or (name.startswith("py4j-") and name.endswith(".zip"))
    return is_python or name.endswith(".jar")
