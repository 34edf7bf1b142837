"""What tests of the sink run in Spark's own processes: a sink that notes its publishing, or dies.

Knows: how to kill the JVM between the publishing of a batch and Spark's own record of it.
Does not know: what came of it.

Run by test_sink_kill.py: `python sinks.py FOLDER SETTINGS` (JSON) writes the files of FOLDER/in as
a stream until its JVM dies.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path


def noting_source():
    """Return a data source whose sink notes each publishing; see `NotingWriter`."""
    from embedq.spark import writing
    from embedq.spark.sink import StreamWriter
    from embedq.spark.source import EmbedqDataSource

    class NotingWriter(StreamWriter):
        """Writes a line for each publishing into `notes`; kills `jvm` after batch `dies`."""

        def __init__(self, wanted, notes: str, jvm: int, dies: int) -> None:
            super().__init__(wanted)
            self._noted = (notes, jvm, dies)

        def _publish(self, batch, messages):
            told = super()._publish(batch, messages)
            assert told is not None
            notes, jvm, dies = self._noted
            with Path(notes).open("a") as file:
                file.write(json.dumps([batch, told.repeated, told.stored]) + "\n")
            if batch == dies:
                os.kill(jvm, signal.SIGKILL)
                signal.pause()  # it never gets an answer
            return told

    class NotingSource(EmbedqDataSource):
        @classmethod
        def name(cls) -> str:
            return "embedq_noting"

        def streamWriter(self, schema, overwrite):  # noqa: N802
            own = {name: self.options.pop(name) for name in ("notes", "jvm", "dies")}
            wanted = writing.parse(self.options, schema, streams=True, overwrite=overwrite)
            return NotingWriter(wanted, own["notes"], int(own["jvm"]), int(own["dies"]))

    return NotingSource


def stream(spark, folder: Path, *, jvm: int = 0, dies: int = -1):
    """Write all files of folder/in as a stream, one in each batch; return the query."""
    spark.dataSource.register(noting_source())
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "in"))
    options = {"endpoint": folder / "q.db", "queue": "orders", "notes": folder / "notes"}
    options |= {"jvm": jvm, "dies": dies, "checkpointLocation": folder / "checkpoint"}
    return (
        lines.selectExpr("value as body")
        .writeStream.format("embedq_noting")
        .options(**{name: str(value) for name, value in options.items()})
        .trigger(availableNow=True)
        .start()
    )


def main(folder: Path, settings: dict[str, str]) -> None:
    """Stream until the JVM is killed."""
    from pyspark import SparkContext

    from embedq.spark import session
    from tests.spark.patience import finished

    spark = session("dying-sink", master="local[2,4]", **settings)
    gateway = SparkContext._gateway
    assert gateway is not None
    jvm = gateway.proc.pid
    finished(lambda: stream(spark, folder, jvm=jvm, dies=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
