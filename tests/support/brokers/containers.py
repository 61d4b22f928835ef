"""Services of docker-compose.yaml as processes of this machine: there is no engine to run them in.

What an engine does is done as far as processes have it: the same command, the same environment and nothing
else, mounted files and secrets in other places, names of other services and published ports instead of a
network of their own. Left out: users, what an image holds, what is mounted read-only.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from onceover.process.children import ChildProcess
from onceover.spark.launch.locate import spark_submit

PROJECT: Final = Path(__file__).parents[3]
_HOME: Final = "/opt/onceover"
_SECRETS: Final = "/run/secrets"
# What an engine gives every process; what the image adds to it.
_GIVEN: Final = ("HOME", "LANG", "JAVA_HOME", "TMPDIR", "PYTHONPATH")


class Containers:
    """The services, in a folder of their own.

    Args:
        folder: where volumes and secrets are; each is made at its first use.
        elsewhere: what stands in the file, and what it is here: hosts, ports.
    """

    def __init__(self, folder: Path, elsewhere: Mapping[str, str]) -> None:
        text = (PROJECT / "docker-compose.yaml").read_text(encoding="utf-8")
        self.services: dict[str, Any] = yaml.safe_load(text)["services"]
        self.secrets = folder / "docker" / "secrets"
        self._folder = folder
        self._elsewhere = dict(elsewhere)
        (folder / "docker").mkdir()
        script = folder / "docker" / "make-secrets"
        script.write_bytes((PROJECT / "docker" / script.name).read_bytes())
        subprocess.run(["bash", script], check=True, capture_output=True)

    def place(self, path: str) -> Path:
        """Return where something of a container is here."""
        if path.startswith(_SECRETS):
            return self.secrets / path.removeprefix(_SECRETS).lstrip("/")
        if path.startswith(_HOME):
            return PROJECT / path.removeprefix(_HOME).lstrip("/")
        return self._folder / path.lstrip("/")

    def command(self, name: str, *, check: bool = False) -> list[str]:
        """Return the service's command; or that of its health check."""
        service = self.services[name]
        words = service["healthcheck"]["test"][1:] if check else service["command"]
        return [self._here(word) for word in words]

    def environment(self, name: str) -> dict[str, str]:
        """Return all that its processes find, and nothing of this process's own settings."""
        programs = [Path(sys.executable).parent, spark_submit().parent]
        path = os.pathsep.join([*map(str, programs), os.environ.get("PATH", os.defpath)])
        given = {key: os.environ[key] for key in _GIVEN if key in os.environ}
        told = {key: self._here(str(text)) for key, text in self.services[name]["environment"].items()}
        image = {"PATH": path, "SPARK_HOME": str(spark_submit().parents[1]), "PYSPARK_PYTHON": sys.executable}
        return {**given, **image, "ONCEOVER_SECRETS": str(self.secrets), **told}

    def start(self, name: str) -> ChildProcess:
        """Start a service, with empty volumes where there are none."""
        for mount in self.services[name].get("volumes", []):
            source, place, *_ = mount.split(":")
            if not source.startswith("."):
                self.place(place).mkdir(parents=True, exist_ok=True)
        log, env = self._folder / f"{name}.log", self.environment(name)
        return ChildProcess.start(self.command(name), name=name, log_path=log, env=env, cwd=self._folder)

    def is_well(self, name: str) -> bool:
        """Run its health check once."""
        done = subprocess.run(
            self.command(name, check=True), env=self.environment(name), capture_output=True, check=False
        )
        return done.returncode == 0

    def _here(self, text: str) -> str:
        for there, here in self._elsewhere.items():
            text = text.replace(there, here)
        return re.sub(r"/(?:opt|run/secrets|var/lib)/[\w./-]+", lambda path: str(self.place(path[0])), text)
