"""Files, messages, worker processes, a queue of results, a Spark stream, Parquet, a report.

    python examples/spark_pipeline.py            # the modules of the standard library
    python examples/spark_pipeline.py FOLDER     # the Python files below a folder

On a cluster, whose executors reach the queues by key (docs/guide-spark.md, "A cluster"):

    export EMBEDQ_ENDPOINT=tcp://127.0.0.1:5555 EMBEDQ_KEYS=keys
    python examples/spark_pipeline.py --master 'local-cluster[2,1,1024]'
"""

import argparse
import logging
import sysconfig
import time
from pathlib import Path
from typing import Any

from pyspark.sql import functions as f
from spark_pipeline_lake import to_parquet
from spark_pipeline_work import broker, files, results

from embedq import Queue
from embedq.spark import session
from embedq.spark.pipelines import report


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--master", help="where Spark runs, else in this machine")
    return parser.parse_args()


def options_of(queue: Queue[Any], **more: object) -> dict[str, str]:
    """Return the options of a queue: by its file, or by key where the host serves a cluster."""
    if (endpoint := broker.settings.endpoint) is not None:
        keys = Path(broker.settings.keys or "") / "executors.secret"
        more |= {"endpoint": endpoint, "keys": keys, "path": None}
    return queue.spark_options(**more)


def main() -> int:
    """Run the pipeline; return 1 if a file was lost."""
    given = arguments()
    logging.getLogger("embedq").setLevel(logging.ERROR)  # the report has the dead letters
    home = Path(broker.settings.path).parent
    folder = given.folder or Path(sysconfig.get_path("stdlib"))
    names = sorted(map(str, folder.glob("**/*.py" if given.folder else "*.py")))
    with broker:
        files.put_many(names)
        while files.stats().length:
            time.sleep(0.1)
        print(f"{len(names):,} files: {results.stats().stored:,} results,", end=" ")
        print(f"{files.stats().dead} dead letters")

        spark = session("pipeline", master=given.master)
        table = to_parquet(spark, options_of(results, startingOffsets="earliest"), home)
        found = table.agg(f.count("file"), f.sum(table.functions + table.classes)).head()
        print(f"Parquet: {found[0]:,} rows, {found[1]:,} functions and classes")

        done = report(spark, options_of(files), home / "report", title="The pipeline of files")
        print(f"report: {done.deliveries:,} deliveries, {len(done.plots)} plots")
        print(f"look at {done.page}")
        return int(found[0] + files.stats().dead != len(names))


if __name__ == "__main__":  # else every worker would run all of it
    raise SystemExit(main())
