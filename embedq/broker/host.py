"""Become the host of a path: open its store, start the engine and its upkeep.

Knows: which store belongs to which path, and what a host does beside answering.
Does not know: consumers, clients, sockets.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from embedq.broker.desk import Desk
from embedq.broker.inherited import inherit
from embedq.clock import Clock, SystemClock
from embedq.limits import LIMITS, Limits
from embedq.storage.connection import Durability
from embedq.storage.memory import MemoryStore
from embedq.storage.sqlite import open_store
from embedq.storage.verify import Verifier

MEMORY = ":memory:"


def open_engine(
    path: str | os.PathLike[str],
    *,
    durability: Durability = "full",
    clock: Clock | None = None,
    limits: Limits = LIMITS,
    upkeep: bool = True,
    survivors: Collection[bytes] = (),
) -> Desk:
    """Become the host of a database file and return its engine. Close it when done.

    `durability`: "full" syncs every commit (promise P1 holds with the power cut); "normal" syncs
    at checkpoints. The path ":memory:" gives a store that ends with the process, for tests.
    `upkeep=False` leaves `engine.upkeep.round()` to the caller. `survivors`: tokens of sessions
    that may outlive an earlier host: what they hold is kept until a server has settled it.

    Raises:
        StoreInUse: a live process is the host already.
        InsecurePermissions, NetworkFilesystem, NotAnEmbedqFile, SchemaTooNew, StoreCorrupt,
        StoreFull: why the file cannot be served; it was not changed.
    """
    clock = clock or SystemClock()
    if os.fspath(path) == MEMORY:
        engine = Desk(MemoryStore(clock), clock=clock, limits=limits)
    else:
        engine = _open_file(path, durability, clock, limits)
    if survivors:
        inherit(engine, survivors)
    if upkeep:
        engine.upkeep.start()
    return engine


def _open_file(
    path: str | os.PathLike[str], durability: Durability, clock: Clock, limits: Limits
) -> Desk:
    store = open_store(path, durability=durability, clock=clock, limits=limits)
    try:
        engine = Desk(store, clock=clock, limits=limits)
    except BaseException:
        store.close(clean=False)
        raise
    previous = store.previous
    if not (store.placement.created or previous.clean or previous.same_boot):
        # The power may have failed: nobody knows what the disk kept. On the same boot the kernel
        # has everything, and SQLite's own recovery of the log is enough.
        engine.upkeep.verifier = Verifier(store)
    return engine
