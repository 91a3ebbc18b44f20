"""Object stores as processes: programs of others that speak S3, and one that speaks as Azure does.

Rule: a bucket of S3 is a folder below `data`, so that a test sees what is left in it, unfinished
uploads too.
Must not know: any package of the server under test.
"""

from __future__ import annotations

import base64
import hmac
import http.client
import os
import subprocess
from abc import ABC, abstractmethod
from email.utils import formatdate
from pathlib import Path
from typing import Self

from botocore.config import Config
from botocore.session import Session

from compat_tests import peers, programs
from compat_tests.deadlines import PROGRAM_S, WAIT_S, wait_until
from compat_tests.servers.ports import ReservedPort
from compat_tests.servers.process import ServerFailed, die_with_parent

ACCESS_KEY = "kledger-tests-key"
SECRET_KEY = "kledger-tests-secret"
REGION = "us-east-1"
ACCOUNT = "kledgertests"
ACCOUNT_KEY = base64.b64encode(SECRET_KEY.encode()).decode()


class StoreServer(ABC):
    """What the servers have in common."""

    def __init__(self, folder: Path) -> None:
        """Keep the data and the log inside `folder`, which is made on start."""
        self.folder = folder
        self._reserved = ReservedPort()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._reserved.number}"

    @property
    def data_folder(self) -> Path:
        """Where the data are."""
        return self.folder / "data"

    @abstractmethod
    def command(self) -> list[str]:
        """Give the command line of the process."""

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


class S3Server(StoreServer):
    """What those that speak S3 have in common."""

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

    def make_bucket(self, name: str) -> Path:
        """Make an empty bucket and return its folder."""
        bucket = self.data_folder / name
        bucket.mkdir()
        return bucket

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


class Azurite(StoreServer):
    """Azurite, Microsoft's emulator of Azure Blob Storage."""

    @property
    def options(self) -> dict[str, object]:
        """What a client needs, by the names of obstore."""
        return {
            "endpoint": f"http://{self.address}/{ACCOUNT}",
            "allow_http": True,
            "account_name": ACCOUNT,
            "account_key": ACCOUNT_KEY,
        }

    def command(self) -> list[str]:
        """See StoreServer."""
        program = programs.built("azurite") / "node_modules" / ".bin" / "azurite-blob"
        host, _, port = self.address.partition(":")
        return [
            "env", f"AZURITE_ACCOUNTS={ACCOUNT}:{ACCOUNT_KEY}",
            peers.program("node"), str(program), "--blobHost", host, "--blobPort", port,
            "--location", str(self.data_folder), "--skipApiVersionCheck", "--disableTelemetry",
        ]  # fmt: skip

    def make_container(self, name: str) -> None:
        """Make an empty container: a request that a tier never sends, signed as Azure wants it."""
        date = formatdate(usegmt=True)
        headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
        lines = [f"{key}:{value}" for key, value in headers.items()]
        lines += [f"/{ACCOUNT}/{ACCOUNT}/{name}", "restype:container"]
        signed = ("PUT" + 12 * "\n" + "\n".join(lines)).encode()
        digest = hmac.digest(base64.b64decode(ACCOUNT_KEY), signed, "sha256")
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        connection = http.client.HTTPConnection(self.address, timeout=WAIT_S)
        connection.request("PUT", f"/{ACCOUNT}/{name}?restype=container", headers=headers)
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()
        connection.close()
