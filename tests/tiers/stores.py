"""Places for tiered objects, and ways into them past the package: a folder, and a bucket of a real S3 endpoint."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
import uuid
from pathlib import Path
from typing import Protocol

import boto3
import pyarrow.fs as fs

KINDS = ("root", "file", "s3")
CREDENTIALS = ("testing", "testing")
PATIENT = {"connect_timeout": 20.0, "request_timeout": 60.0}
"""How long requests may take where a machine is busy, and nothing is to hang."""
_SERVER = Path(__file__).with_name("store_server.py")


class Store(Protocol):
    """Where a topic's objects go, by ``uri`` (None: into the log's root). Objects are named by their path in there."""

    uri: str | None

    def names(self) -> list[str]:
        """Return the names of all objects, sorted, without second files."""

    def files(self) -> list[str]:
        """Return the names of all files, sorted."""

    def read(self, name: str) -> bytes: ...
    def write(self, name: str, data: bytes) -> None: ...
    def remove(self, name: str) -> None: ...


class FolderStore:
    """Objects in a folder of this machine."""

    def __init__(self, folder: Path, uri: str | None) -> None:
        self.uri = uri
        self._folder = folder

    def names(self) -> list[str]:
        return [name for name in self.files() if name.endswith(".parquet")]

    def files(self) -> list[str]:
        return sorted(str(p.relative_to(self._folder)) for p in self._folder.rglob("*") if p.is_file())

    def read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        (self._folder / name).write_bytes(data)

    def remove(self, name: str) -> None:
        (self._folder / name).unlink()


class Bucket:
    """Objects in ``folder`` of a bucket of its own; empty ones that stand for folders don't count."""

    def __init__(self, endpoint: str, system: fs.S3FileSystem) -> None:
        self.name = f"bucket-{uuid.uuid4().hex[:12]}"
        self.uri: str = self.uri_at(endpoint)
        self._system = system
        system.create_dir(self.name)

    def uri_at(self, endpoint: str, **parameters: object) -> str:
        """Return the URI of the folder by another way to it, such as a proxy."""
        more = "".join(f"&{name}={value}" for name, value in parameters.items())
        return f"s3://{self.name}/folder?endpoint_override=http://{endpoint}{more}"

    def names(self) -> list[str]:
        return [name for name in self.files() if name.endswith(".parquet")]

    def files(self) -> list[str]:
        found = self._system.get_file_info(fs.FileSelector(self.name, recursive=True))
        prefix = f"{self.name}/folder/"
        return sorted(info.path.removeprefix(prefix) for info in found if info.type is fs.FileType.File)

    def read(self, name: str) -> bytes:
        with self._system.open_input_file(f"{self.name}/folder/{name}") as file:
            return file.read()

    def write(self, name: str, data: bytes) -> None:
        with self._system.open_output_stream(f"{self.name}/folder/{name}") as file:
            file.write(data)

    def remove(self, name: str) -> None:
        self._system.delete_file(f"{self.name}/folder/{name}")

    def download(self, target: Path) -> None:
        """Copy all files into a folder."""
        for name in self.files():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(self.read(name))


class S3Server:
    """An S3 endpoint in a process of its own. A context manager."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(_SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.endpoint = self._process.stdout.readline().strip()

    def __enter__(self) -> S3Server:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.communicate()  # closes its standard input, which ends it

    def make_bucket(self) -> Bucket:
        """Return a new bucket."""
        access, secret = CREDENTIALS
        return Bucket(
            self.endpoint,
            fs.S3FileSystem(
                access_key=access, secret_key=secret, endpoint_override=self.endpoint, scheme="http",
                region="us-east-1", allow_bucket_creation=True,
            ),
        )  # fmt: skip

    def make_reader(self) -> tuple[str, str]:
        """Return the credentials of a new user who may read everything and write nothing."""
        access, secret = CREDENTIALS
        iam = boto3.client(
            "iam", "us-east-1", endpoint_url=f"http://{self.endpoint}", aws_access_key_id=access,
            aws_secret_access_key=secret,
        )  # fmt: skip
        name = f"reader-{uuid.uuid4().hex[:12]}"
        allowed = {"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
        iam.create_user(UserName=name)
        iam.put_user_policy(UserName=name, PolicyName="read", PolicyDocument=policy)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        iam.close()
        return key["AccessKeyId"], key["SecretAccessKey"]

    def check_credentials(self, wanted: bool) -> None:
        """From now on let in those only who have the right, or (as at first) everybody."""
        request = urllib.request.Request(
            f"http://{self.endpoint}/moto-api/reset-auth",
            b"0" if wanted else b"inf",
            {"Content-Type": "text/plain"},
            method="POST",
        )
        with urllib.request.urlopen(request) as response:
            response.read()


def make_store(kind: str, log_root: Path, folder: Path, server: S3Server | None) -> Store:
    """Return a fresh store of a kind."""
    if kind == "root":
        return FolderStore(log_root / "tiered", None)
    if kind == "file":
        return FolderStore(folder, f"file://{folder}")
    assert server is not None
    return server.make_bucket()
