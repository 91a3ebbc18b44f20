"""Files where Spark writes: a local folder, HDFS or an object store, by Hadoop's file system.

Rule: paths are texts, as users write them. Must not know: what the files hold.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession


class HadoopFiles:
    """The file system of one path."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        # The driver's Hadoop classes are what Spark itself writes with; they have no Python face.
        assert spark._jvm is not None
        self._hadoop: Any = spark._jvm.org.apache.hadoop.fs
        configuration = spark._jsc.hadoopConfiguration()
        self._system: Any = self._path(path).getFileSystem(configuration)

    def exists(self, path: str) -> bool:
        """Return whether there is a file or folder."""
        return bool(self._system.exists(self._path(path)))

    def listed(self, pattern: str) -> list[str]:
        """Return the paths that match a pattern, such as `FOLDER/date=*/x-*`, in order."""
        found = self._system.globStatus(self._path(pattern))
        return sorted(str(each.getPath().toString()) for each in found or ())

    def below(self, folder: str) -> Iterator[str]:
        """Yield every file below a folder, at any depth."""
        walk = self._system.listFiles(self._path(folder), True)
        while walk.hasNext():
            yield str(walk.next().getPath().toString())

    def read_text(self, path: str) -> str:
        """Return the text of a small file."""
        stream = self._system.open(self._path(path))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write_text(self, path: str, text: str) -> None:
        """Write a small file to a path where none is; it is there as a whole, or not at all.

        Raises:
            OSError: there is a file.
        """
        arriving = f"{path}.new"
        stream = self._system.create(self._path(arriving), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self.move(arriving, path)

    def make_folder(self, path: str) -> None:
        """Make a folder, unless it is there."""
        self._system.mkdirs(self._path(path))

    def move(self, source: str, target: str) -> None:
        """Move a file to a path where none is.

        Raises:
            OSError: the file system refused, usually because there is a file.
        """
        if not self._system.rename(self._path(source), self._path(target)):
            raise OSError(f"{source} could not be moved to {target}; is there a file already?")

    def delete(self, path: str) -> None:
        """Delete a file or a folder with everything in it, if it is there."""
        self._system.delete(self._path(path), True)

    def _path(self, text: str) -> Any:
        return self._hadoop.Path(text)
