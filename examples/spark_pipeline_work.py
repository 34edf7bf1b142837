"""The work of spark_pipeline.py: worker processes parse files, and put what they find."""

import ast
import os
import tempfile
import warnings
from pathlib import Path

from embedq import Broker, RetryPolicy

# Each worker imports this file: it has to find the same database. What it inherits tells it.
os.environ.setdefault("EMBEDQ_PATH", str(Path(tempfile.mkdtemp()) / "pipeline.db"))
broker = Broker()
# What is settled is kept for a day, with its history: that is what Spark reads.
files = broker.queue("files", str, retry=RetryPolicy(3, base="200ms", cap="2s"), retain="1d")
results = broker.queue("results", dict, retain="1d")
warnings.simplefilter("ignore")  # those files' warnings are not ours


@files.consumer(pool="process", concurrency=2, timeout="1m")
def count_definitions(name: str) -> None:
    """Count the functions and classes of a file."""
    tree = ast.parse(Path(name).read_bytes(), name)
    kinds = [type(node) for node in ast.walk(tree)]
    found = {
        "file": name,
        "functions": kinds.count(ast.FunctionDef) + kinds.count(ast.AsyncFunctionDef),
        "classes": kinds.count(ast.ClassDef),
    }
    # After a crash the file is parsed again; its result is not put twice.
    results.put(found, dedup_key=name[-200:])
