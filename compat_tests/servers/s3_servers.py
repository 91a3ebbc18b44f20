"""S3 servers as processes: programs of others that speak the protocol, on folders.

Rule: a bucket is a folder below `data`, so that a test sees what is left in it, unfinished uploads
too.
Must not know: any package of the server under test.
"""

from __future__ import annotations

import http.client
import os
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

from botocore.config import Config
from botocore.session import Session

from compat_tests import programs
from compat_tests.deadlines import PROGRAM_S, WAIT_S, wait_until
from compat_tests.servers.ports import ReservedPort
from compat_tests.servers.process import ServerFailed, die_with_parent

ACCESS_KEY = "kledger-tests-key"
SECRET_KEY = "kledger-tests-secret"
REGION = "us-east-1"


class S3Server(ABC):
    """What the servers have in common."""

    def __init__(self, folder: Path) -> None:
        """Keep buckets and the log inside `folder`, which is made on start."""
        self.folder = folder
        self._reserved = ReservedPort()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._reserved.number}"

    @property
    def options(self) -> dict[str, object]:
        """What a client needs, by the names of obstore."""
        return {
            "endpoint": f"http://{self.address}",
            "allow_http": True,
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY,
            "region": REGION,
        }

    @property
    def data_folder(self) -> Path:
        """Where the buckets are."""
        return self.folder / "data"

    def make_bucket(self, name: str) -> Path:
        """Make an empty bucket and return its folder."""
        bucket = self.data_folder / name
        bucket.mkdir()
        return bucket

    @abstractmethod
    def command(self) -> list[str]:
        """Give the command line of the process."""

    def files(self) -> list[str]:
        """Return all files of all buckets, and those of unfinished uploads."""
        # Not rglob, which fails when the server deletes a folder meanwhile.
        found = (
            Path(folder, name) for folder, _, names in os.walk(self.data_folder) for name in names
        )
        return sorted(str(each.relative_to(self.data_folder)) for each in found)

    def unfinished_uploads(self, bucket: str) -> list[str]:
        """Return the keys of the uploads in parts that were not ended, as the server lists them."""
        client = Session().create_client(
            "s3",
            endpoint_url=f"http://{self.address}",
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=Config(s3={"addressing_style": "path"}),
        )
        listed = client.list_multipart_uploads(Bucket=bucket)
        client.close()
        return [each["Key"] for each in listed.get("Uploads", ())]

    @property
    def log_file(self) -> Path:
        """What the server printed."""
        return self.folder / "server.log"

    def start(self) -> None:
        """Start the process and wait until it answers.

        Raises:
            ServerFailed: it ended, or did not answer in time.
        """
        self.data_folder.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call, takes no lock
                start_new_session=True,
            )
        try:
            wait_until(self._answers_or_ended, "an answer", within_s=PROGRAM_S)
        except AssertionError as error:
            raise self._failed(str(error)) from None
        if self._process.poll() is not None:
            raise self._failed("it ended")

    def _failed(self, why: str) -> ServerFailed:
        self.stop()
        return ServerFailed(f"{self.command()[0]}: {why}: {self.log_file.read_text()[-2000:]}")

    def _answers_or_ended(self) -> bool:
        assert self._process is not None, "it was started"
        return self._process.poll() is not None or self._answers()

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(self.address, timeout=WAIT_S)
        try:
            connection.request("GET", "/")
            connection.getresponse()
        except OSError:
            return False
        finally:
            connection.close()
        return True

    def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop, and let the port go."""
        self.stop()
        self._reserved.close()


class VersityGateway(S3Server):
    """VersityGW, which keeps objects in a POSIX file system."""

    def command(self) -> list[str]:
        """See S3Server."""
        program = programs.built("versitygw") / "built" / "versitygw"
        side = self.folder / "sidecar"
        side.mkdir(exist_ok=True)
        keys = ["--access", ACCESS_KEY, "--secret", SECRET_KEY, "--region", REGION]
        return [
            str(program), *keys, "--quiet", "--port", self.address,
            "posix", "--sidecar", str(side), str(self.data_folder),
        ]  # fmt: skip


class RcloneServer(S3Server):
    """`rclone serve s3`, which keeps objects in a folder."""

    def command(self) -> list[str]:
        """See S3Server."""
        program = programs.built("rclone") / "built" / "rclone"
        return [
            str(program), "serve", "s3", "--config", "/dev/null", "--addr", self.address,
            "--dir-cache-time", "1ms",  # buckets are made behind its back
            "--auth-key", f"{ACCESS_KEY},{SECRET_KEY}", str(self.data_folder),
        ]  # fmt: skip
