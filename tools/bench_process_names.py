"""The names by which the benchmark of processes tells its programs what they are.

Knows: environment variables.
Does not know: who reads them, and why.
"""

from __future__ import annotations

#: Where an application's database is, which consumers it has, what a handler computes in vain
#: (seconds).
PATH, MODE, PLANTED = "EMBEDQ_BENCH_PATH", "EMBEDQ_BENCH_MODE", "EMBEDQ_BENCH_PLANTED_S"
#: Worker processes of the application that drains.
WORKERS = 2

#: Which library a worker is of, the folder of its run, where Redis listens.
PEER, FOLDER, REDIS = "EMBEDQ_BENCH_PEER", "EMBEDQ_BENCH_FOLDER", "EMBEDQ_BENCH_REDIS"
#: Ends the names of files in which workers count what they have done.
COUNTED = ".count"
