"""Set up ``.venv``: everything pinned, nothing done twice. Needs only Python; run by every make target.

Standard library only, because nothing else is there yet.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".set-up"
UV = "uv==0.13.8"
PROJECT = ".[pyspark,postgres,hive,hdfs,s3,gcs,azure,delta,glue,openlineage]"
INPUTS = ("pyproject.toml", "constraints.txt", "scripts/setup.py")


def main() -> int:
    """Do what is missing; says what it does, and what to do when it cannot."""
    if sys.version_info < (3, 11):  # noqa: UP036 - this runs under whatever python3 is there
        return fail(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}; run: make PYTHON=python3.11")
    wanted = hashlib.sha256(b"".join((ROOT / name).read_bytes() for name in INPUTS) + sys.version.encode()).hexdigest()
    if not (STAMP.exists() and STAMP.read_text() == wanted):
        STAMP.unlink(missing_ok=True)
        try:
            install()
        except subprocess.CalledProcessError as error:
            return fail(f"'{' '.join(map(str, error.cmd))}' failed; the lines above say why. Run make again when that is mended.")
        STAMP.write_text(wanted)
    return check_java()


def install() -> None:
    """The virtual environment, and in it the project with its pinned dependencies."""
    if not PYTHON.exists():
        step("virtual environment .venv", [sys.executable, "-m", "venv", "--clear", str(VENV)])
    step(
        "Airflow, PySpark and the other pinned packages (about 1.2 GB, once)",
        [
            *(*installer(), "--quiet", "--constraint", "constraints.txt", "--editable", PROJECT),
            *("--group", "dev", "--group", "bench"),
        ],
    )
    # Also where PYTHONDONTWRITEBYTECODE is set: every airflow command would compile for five seconds.
    step("bytecode", [str(PYTHON), "-m", "compileall", "-qq", "-j", "0", str(VENV / "lib")])


def installer() -> list[str]:
    """How to install packages: by uv, which is much faster, or by pip where uv cannot be had."""
    pip = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check"]
    try:
        step(UV, [*pip, "--quiet", UV])
    except subprocess.CalledProcessError:
        step("pip instead, in a version that knows dependency groups", [*pip, "--quiet", "--upgrade", "pip>=25.1"])
        return pip
    return [str(VENV / "bin" / "uv"), "pip", "install", "--python", str(PYTHON)]


def step(what: str, command: list[str]) -> None:
    """Run one command and say how long it took."""
    print(f"set-up: {what} ...", flush=True)
    started = time.monotonic()
    subprocess.run(command, cwd=ROOT, check=True)
    print(f"set-up: done in {time.monotonic() - started:.0f} s", flush=True)


def check_java() -> int:
    """Spark needs Java 17 or newer."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        return fail("Spark needs Java 17, and there is no java; run: apt-get install -y openjdk-17-jre-headless")
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', told)
    if version is None or int(version[1]) < 17:
        return fail(f"Spark needs Java 17 or newer, {java} is another; run: apt-get install -y openjdk-17-jre-headless")
    return 0


def fail(message: str) -> int:
    """Say what is wrong and what to do."""
    print(f"set-up: {message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
