"""Stands in for pip: checks that the extras a page installs exist."""

import re
import sys
import tomllib
from pathlib import Path

root, *arguments = sys.argv[1:]
project = tomllib.loads((Path(root) / "pyproject.toml").read_text())["project"]
asked = [re.fullmatch(r"airflow-dynamic-tables(?:\[([\w,]+)\])?", argument) for argument in arguments if argument != "install"]
extras = {extra for match in asked if match and match[1] for extra in match[1].split(",")}
unknown = extras - set(project["optional-dependencies"])
sys.exit(f"not understood: {arguments}" if None in asked else f"no such extras: {unknown}" if unknown else 0)
