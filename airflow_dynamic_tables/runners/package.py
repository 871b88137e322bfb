"""What a job needs of this package on the cluster."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path

import airflow_dynamic_tables
from airflow_dynamic_tables.exceptions import ConfigurationError

_PACKAGE = Path(airflow_dynamic_tables.__file__).parent


def application_file() -> Path:
    """The job's main file."""
    return _PACKAGE / "jobs" / "main.py"


def application_zip() -> Path:
    """The package as the job needs it on the cluster: ``--py-files``; made once for every content, in a private folder."""
    files = sorted(file for part in ("*.py", "core/**/*.py", "jobs/**/*.py") for file in _PACKAGE.glob(part))
    # Of the top level only what the job imports: the rest may want Airflow.
    files = [file for file in files if file.parent != _PACKAGE or file.name in ("__init__.py", "exceptions.py", "redaction.py")]
    content = {str(file.relative_to(_PACKAGE.parent)): file.read_bytes() for file in files}
    digest = hashlib.sha256(repr(sorted(content.items())).encode()).hexdigest()[:16]
    target = private_folder() / f"airflow_dynamic_tables-{digest}.zip"
    if not target.exists():
        # By a name that no other thread has, either.
        with (
            tempfile.NamedTemporaryFile(dir=target.parent, suffix=".writing", delete=False) as half,
            zipfile.ZipFile(half, "w") as archive,
        ):
            for name, data in content.items():
                archive.writestr(name, data)
        Path(half.name).replace(target)
    return target


def private_folder() -> Path:
    """A folder of this user's below the temporary one.

    :raises ConfigurationError: when somebody else made it first: the job would run what they put there.
    """
    folder = Path(tempfile.gettempdir()) / f"airflow-dynamic-tables-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode) or status.st_mode & 0o022:
        mistake = "is no folder, belongs to another user or is writable by others"
        raise ConfigurationError(f"{folder} {mistake}; remove it, or set TMPDIR.")
    return folder
