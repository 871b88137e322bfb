"""Stands in for pre-commit: checks that its configuration fetches nothing and runs what make has."""

import subprocess
import sys
from pathlib import Path

import yaml

root, *arguments = sys.argv[1:]
(repository,) = yaml.safe_load((Path(root) / ".pre-commit-config.yaml").read_text())["repos"]
for hook in repository["hooks"]:
    make, target = hook["entry"].split()
    subprocess.run(["make", "-n", "-C", root, target], check=True, stdout=subprocess.DEVNULL)
sys.exit(0 if (repository["repo"], arguments, make) == ("local", ["install"], "make") else f"not understood: {arguments}")
