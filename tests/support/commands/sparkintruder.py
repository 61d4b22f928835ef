"""A stranger's JVM on the same machine: which of a Spark driver's doors open to it without a secret.

Run as a program with the driver's port; prints one JSON object.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

# What takes heartbeats, and what takes stop and kill messages.
DOORS: Final = ("HeartbeatReceiver", "BlockManagerMaster", "MapOutputTracker", "OutputCommitCoordinator")
_ANSWER_S: Final = 15
_TIMEOUT_S: Final = 120.0


def open_doors(port: int) -> list[str]:
    """Return which doors of the driver at a port of loopback open."""
    command = [sys.executable, "-m", __name__, str(port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode:
        raise AssertionError(done.stderr[-2000:])
    tried: dict[str, bool] = json.loads(done.stdout.splitlines()[-1])
    if tuple(tried) != DOORS:
        raise AssertionError(f"tried other doors: {tried}")
    return [door for door, opened in tried.items() if opened]


def _try(port: int) -> dict[str, bool]:
    from py4j.protocol import Py4JJavaError
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway()
    jvm = gateway.jvm
    spark = jvm.org.apache.spark
    names = getattr(spark.internal.config, "package$").__getattr__("MODULE$")
    conf = (
        spark.SparkConf(False).set("spark.rpc.askTimeout", f"{_ANSWER_S}s").set("spark.rpc.numRetries", "1")
    )
    conf.set("spark.rpc.lookupTimeout", f"{_ANSWER_S}s")
    nothing = getattr(getattr(jvm.scala, "None$"), "MODULE$")
    security = spark.SecurityManager(conf, nothing, names.AUTH_SECRET_FILE())
    maker = getattr(getattr(spark.rpc, "RpcEnv$"), "MODULE$")
    stranger = maker.create("stranger", "127.0.0.1", 0, conf, security, True)
    address, found = spark.rpc.RpcAddress("127.0.0.1", port), {}
    for door in DOORS:
        try:
            stranger.setupEndpointRef(address, door)
        except Py4JJavaError:
            found[door] = False
        else:
            found[door] = True
    stranger.shutdown()
    gateway.shutdown()
    return found


if __name__ == "__main__":
    print(json.dumps(_try(int(sys.argv[1]))))  # noqa: T201 - its answer
