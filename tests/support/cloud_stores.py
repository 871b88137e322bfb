"""Emulators of Google Cloud Storage and of Azure's blob storage, on the loopback interface."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import fsspec
import httpx
import pytest

from tests.support.downloads import unpacked
from tests.support.ports import free_port
from tests.support.processes import running_server

BUCKET = "lake"

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account that Azurite has, and its key, which is public."""


@dataclass(frozen=True, slots=True)
class CloudStore:
    """A store that runs, with one bucket: the URI of this, and the environment that leads clients to it."""

    uri: str
    url: str
    environment: Mapping[str, str]


@contextmanager
def running_gcs() -> Iterator[CloudStore]:
    """Google Cloud Storage, by fake-gcs-server, in memory."""
    port = free_port()
    (server,) = unpacked("fake-gcs-server").rglob("fake-gcs-server-linux-amd64")
    url = f"http://127.0.0.1:{port}"
    options = ("-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory")
    names = ("-public-host", f"127.0.0.1:{port}", "-external-url", url)
    environment = {
        "STORAGE_EMULATOR_HOST": url,
        "NO_GCE_CHECK": "true",  # no request for a token leaves this machine
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # asks Google's control plane for the kind of a bucket
    }
    with _running("gs", [str(server), *options, *names], url, environment):
        yield CloudStore(f"gs://{BUCKET}", url, environment)


@contextmanager
def running_azure() -> Iterator[CloudStore]:
    """Azure's blob storage, by Azurite, in memory."""
    port = free_port()
    program = unpacked("azurite") / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    url = f"http://127.0.0.1:{port}/{ACCOUNT}"
    options = ("--inMemoryPersistence", "--disableTelemetry", "--silent", "--skipApiVersionCheck")
    settings = {"DefaultEndpointsProtocol": "http", "AccountName": ACCOUNT, "AccountKey": KEY, "BlobEndpoint": url}
    environment = {"AZURE_STORAGE_CONNECTION_STRING": ";".join(f"{name}={value}" for name, value in settings.items())}
    command = ["node", str(program), "--blobHost", "127.0.0.1", "--blobPort", str(port), *options]
    with _running("abfs", command, f"http://127.0.0.1:{port}", environment):
        yield CloudStore(f"abfss://{BUCKET}@{ACCOUNT}.dfs.core.windows.net", url, environment)


@contextmanager
def _running(scheme: str, command: Sequence[str], url: str, environment: Mapping[str, str]) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        with running_server(f"the emulator of {scheme}", command, Path(folder, "log"), lambda: _answers(url)):
            fsspec.filesystem(scheme).mkdir(BUCKET)
            yield


def _answers(url: str) -> bool:
    with suppress(httpx.TransportError):
        httpx.get(url, timeout=30)
        return True
    return False
