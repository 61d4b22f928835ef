"""Facts about the machine and the versions, for the reader of the numbers."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import psutil

from onceover.wire.batches.kernel import kernel

_CPU_INFO: Final = Path("/proc/cpuinfo")
_PACKAGES: Final = ("onceover", "pyspark", "confluent-kafka", "kafka-python", "cramjam")


def machine_facts(kafka_version: str) -> dict[str, Any]:
    """Return cores, memory, operating system and versions; no names and no paths."""
    return {
        "cores": os.cpu_count(),
        "cpu": _cpu_model(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "load_before": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": _java_version(),
        "kafka": kafka_version,
        # What must be taken apart or merged costs many times as much without it (docs/adr/0014).
        "records": "compiled" if kernel() else "python",
        "packages": {package: version(package) for package in _PACKAGES},
    }


def _cpu_model() -> str:
    if _CPU_INFO.exists():
        for line in _CPU_INFO.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _java_version() -> str:
    java = shutil.which("java")
    if java is None:
        return "not on PATH"
    # `java -version` has always written to stderr.
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=30)
    return (answer.stderr.splitlines() or ["unknown"])[0]
