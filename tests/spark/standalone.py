"""A standalone cluster on this machine: a master, and workers that are different hosts to Spark.

Knows: how its processes are started, when they are ready, that none outlives its block.
Does not know: what runs on it.

Spark starts no second attempt of a task on the host of the first. Each worker therefore has an
address of its own, of 127.0.0.0/8; those of `local-cluster` share one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.processes import kill, lines_until
from tests.spark.conftest import QUICK_JAVA

#: What masters and workers log: what they say of themselves, on standard output.
_LOG: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stdout.ref = console
logger.deploy.name = org.apache.spark.deploy
logger.deploy.level = info
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_OUT
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %m%n
"""
_PATIENCE_S: Final = 240.0


def home_in(folder: Path) -> Path:
    """Return PySpark as a folder of links: workers make theirs here, not where it is installed."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home = folder / "home"
    home.mkdir()
    for each in Path(spec.origin).parent.iterdir():
        if each.name != "work":
            (home / each.name).symlink_to(each)
    return home


def environment_in(folder: Path, java: str) -> dict[str, str]:
    """Return the environment for the processes of a cluster and for its driver."""
    return {
        **os.environ,
        "JAVA_HOME": java,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(home_in(folder)),
    }


@contextmanager
def cluster(folder: Path, environment: dict[str, str], hosts: list[str]) -> Iterator[str]:
    """Start a master and a worker with one core for each host; give the master's address."""
    log = folder / "cluster.properties"
    log.write_text(_LOG)
    options = f"{QUICK_JAVA} -Dlog4j2.configurationFile={log.as_uri()}"
    shared = {**environment, "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": options}
    with ExitStack() as stack:

        def start(host: str, name: str, *words: str) -> subprocess.Popen[str]:
            program = Path(environment["SPARK_HOME"], "bin", "spark-class")
            where = ["--host", host, "--port", "0", "--webui-port", "0"]
            process = subprocess.Popen(
                [program, f"org.apache.spark.deploy.{name}", *where, *words],
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
                env={**shared, "SPARK_LOCAL_IP": host},
            )
            stack.callback(process.communicate)
            stack.callback(kill, process)
            return process

        master = start("127.0.0.1", "master.Master")
        told = lines_until(master, "Starting Spark master at", _PATIENCE_S)[-1]
        address = told.split()[-1]
        work = str(folder / "work")
        given = ["--cores", "1", "--memory", "700m", "--work-dir", work, address]
        workers = [start(host, "worker.Worker", *given) for host in hosts]
        for worker in workers:
            lines_until(worker, "Successfully registered with master", _PATIENCE_S)
        yield address
