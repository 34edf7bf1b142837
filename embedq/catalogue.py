"""The catalogue of events: every event with its level, its fields, its text and its meaning.

Knows: names, levels and fields, which are an API, and which fields hold the words of others.
Does not know: when an event happens, who hears of it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

#: Level of events that happen for every message: they are counted and never passed on.
COUNTED: Final = 0
DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR

_LEVEL_NAMES: Final = {COUNTED: "counted", DEBUG: "debug", INFO: "info"} | {
    WARNING: "warning",
    ERROR: "error",
}


class EventSpec(NamedTuple):
    """One row of the catalogue. `text` is filled in with the fields; `note` is for the docs."""

    level: int
    fields: tuple[str, ...]
    text: str
    note: str

    @property
    def level_name(self) -> str:
        """The level as it is written: counted, debug, info, warning, error."""
        return _LEVEL_NAMES[self.level]


def _spec(level: int, fields: str, text: str, note: str) -> EventSpec:
    return EventSpec(level, tuple(fields.split()), text, note)


_MESSAGE: Final = "queue {queue!r}, group {group!r}: message {id}"

#: Names, levels and fields are an API: nothing is renamed, fields are only added.
CATALOGUE: Final[Mapping[str, EventSpec]] = {
    # --- every message
    "put": _spec(COUNTED, "queue", "", "messages were stored"),
    "delivered": _spec(COUNTED, "queue group", "", "deliveries were handed to consumers"),
    "acked": _spec(COUNTED, "queue group", "", "deliveries were settled as done"),
    # --- what becomes of a delivery
    "retried": _spec(
        *(DEBUG, "queue group id seq attempt delay_s error"),
        _MESSAGE + " failed attempt {attempt} ({error}); again in {delay_s} s",
        "an attempt failed and another will follow",
    ),
    "lease_expired": _spec(
        *(WARNING, "queue group id seq attempt"),
        _MESSAGE + " had no answer to attempt {attempt} before its lease ended",
        "nobody answered in time, or a client of a listener when its host died: it comes again",
    ),
    "released": _spec(
        *(DEBUG, "queue group count"),
        "queue {queue!r}, group {group!r}: {count} deliveries were given back",
        "deliveries were given back without costing an attempt",
    ),
    "crashed_delivery": _spec(
        *(WARNING, "queue group id seq attempt crashes cause"),
        _MESSAGE + " was being delivered (attempt {attempt}) when its process ended: {cause}",
        "its worker died, or its host, as is found after a restart: its attempt counts",
    ),
    "suspect": _spec(
        *(WARNING, "queue group id seq crashes"),
        _MESSAGE + " may have ended its process (crashes so far: {crashes}) and runs alone",
        "messages that were running at a crash are retried one at a time",
    ),
    "dead": _spec(
        *(WARNING, "queue group id seq reason detail"),
        _MESSAGE + " is dead: {reason} ({detail})",
        "a message became a dead letter",
    ),
    "expired": _spec(
        *(DEBUG, "queue group id seq"),
        _MESSAGE + " has expired",
        "its time to live ended first; `dead` tells about it, too",
    ),
    "corrupt": _spec(
        *(ERROR, "queue group id seq"),
        _MESSAGE + " does not match its checksum",
        "a stored body is damaged; `dead` tells about it, too",
    ),
    "redriven": _spec(
        *(INFO, "queue count by"),
        "queue {queue!r}: {count} dead letters were put again by {by}",
        "dead letters became new messages",
    ),
    "dropped": _spec(
        *(INFO, "queue count"),
        "queue {queue!r} is full: its {count} oldest messages were dropped",
        "puts into a full queue pushed messages out (when_full is drop_oldest)",
    ),
    "purged": _spec(
        *(INFO, "queue group what count"),
        "queue {queue!r}: {count} {what} were purged",
        "an operator removed messages or dead letters; `group` is None for all groups",
    ),
    "stage_swept": _spec(
        *(WARNING, "queue sink count"),
        "queue {queue!r}: {count} messages that sink {sink!r} had staged were removed",
        "what a writer had staged was never published: it ended, or its job did (stage_kept_s)",
    ),
    "let_go": _spec(
        *(WARNING, "queue group count upto"),
        "queue {queue!r}, group {group!r}: {count} messages up to seq {upto} are held no longer",
        "a reader, as Spark, is behind by more than its maxHold: it finds them missing",
    ),
    # --- consumers
    "consumer_registered": _spec(
        *(INFO, "queue group consumer concurrency kind"),
        "queue {queue!r}, group {group!r}: {consumer} consumes ({kind}, {concurrency} slots)",
        "a consumer has started",
    ),
    "consumer_error": _spec(
        *(ERROR, "queue group consumer error"),
        "queue {queue!r}, group {group!r}: {consumer} cannot go on: {error}",
        "something beside the handler failed: the slot tries again",
    ),
    "handler_failed": _spec(
        *(INFO, "queue group consumer id seq attempt error"),
        _MESSAGE + ": {consumer} failed attempt {attempt}: {error}",
        "a handler raised; `retried` or `dead` says what follows",
    ),
    "handler_timeout": _spec(
        *(WARNING, "queue group consumer id seq attempt timeout_s"),
        _MESSAGE + ": {consumer} exceeded its timeout of {timeout_s} s",
        "a handler ran longer than its timeout",
    ),
    "stuck_slot": _spec(
        *(ERROR, "queue group consumer id seq thread"),
        _MESSAGE + ": {consumer} does not return; its thread {thread} is lost",
        "a thread ignores its cancellation; it cannot be ended from outside",
    ),
    "job_progress": _spec(
        *(DEBUG, "queue group consumer id seq attempt done tasks"),
        _MESSAGE + ": {consumer} has done {done} of {tasks} Spark tasks",
        "the Spark jobs of a delivery have got on; looked at once a second",
    ),
    "job_cancelled": _spec(
        *(INFO, "queue group consumer id seq attempt reason"),
        _MESSAGE + ": the Spark jobs of {consumer} were cancelled: {reason}",
        "a handler with `spark=` was made to end: timeout, drain, lease_lost or request",
    ),
    "spark_lost": _spec(
        *(WARNING, "queue group consumer error"),
        "queue {queue!r}, group {group!r}: {consumer} has no Spark session: {error}",
        "the JVM died or could not be had; the message comes again, which costs no attempt",
    ),
    "loop_blocked": _spec(
        *(WARNING, "queue group consumer seconds stack"),
        "queue {queue!r}, group {group!r}: {consumer} has held its loop for {seconds} s\n{stack}",
        "a coroutine does not give way: others on its loop wait",
    ),
    "slot_replaced": _spec(
        *(WARNING, "queue group consumer stuck"),
        "queue {queue!r}, group {group!r}: {consumer} has a new slot, {stuck} are stuck",
        "a new thread took the place of a stuck one",
    ),
    # --- other processes
    "worker_died": _spec(
        *(WARNING, "worker pid cause rss started released messages"),
        "{worker} (process {pid}) died: {cause}; {started} deliveries had started, {released} "
        "were given back",
        "a client's process ended without leaving in order",
    ),
    "client_lost": _spec(
        *(WARNING, "client pid seconds started released"),
        "{client} (process {pid}) has not answered for {seconds} s; {started} deliveries count "
        "as crashed, {released} were given back",
        "a client was away longer than it may: stopped, or its connection broke",
    ),
    "worker_refused": _spec(
        *(ERROR, "queue group consumer number error"),
        "queue {queue!r}, group {group!r}: worker process {number} of {consumer} cannot start: "
        "{error}",
        "its module cannot be imported there, or has no such consumer; it is tried again later",
    ),
    "worker_recycled": _spec(
        *(INFO, "queue group consumer number pid reason"),
        "queue {queue!r}, group {group!r}: worker process {number} of {consumer} ({pid}) is being "
        "replaced after {reason}",
        "max_messages, max_rss or max_age was reached; its successor has started already",
    ),
    # --- queues
    "queue_declared": _spec(
        *(INFO, "queue"), "queue {queue!r} was created", "a queue was named for the first time"
    ),
    "settings_changed": _spec(
        *(WARNING, "queue changes"),
        "queue {queue!r}: an explicit declaration changed {changes}",
        "the last declaration wins over what was stored",
    ),
    "stranded": _spec(
        *(WARNING, "queue group count"),
        "queue {queue!r}: its first group {group!r} begins at the end, so that {count} messages "
        "put before it are for nobody",
        "they stay until a group that starts at the beginning takes them, or a purge",
    ),
    "paused": _spec(INFO, "queue", "queue {queue!r} was paused", "nothing is delivered from it"),
    "resumed": _spec(INFO, "queue", "queue {queue!r} was resumed", "deliveries go on"),
    "folder_watched": _spec(
        *(INFO, "queue path count"),
        "queue {queue!r}: {path} is watched; {count} of its files are new",
        "watch_folder has looked at all files for the first time since the broker started",
    ),
    "folder_trouble": _spec(
        *(WARNING, "queue path detail"),
        "queue {queue!r}: {path} cannot be watched as it should: {detail}",
        "the folder is missing, or its messages cannot be put; it is tried again every second",
    ),
    "file_unreadable": _spec(
        *(WARNING, "queue path error"),
        "queue {queue!r}: {path} becomes no message: {error}",
        "a file of a watched folder cannot be read; it is tried again when it has changed",
    ),
    # --- listeners
    "listening": _spec(
        *(INFO, "listener protocol"),
        "{listener} is listened at",
        "clients of a protocol can connect",
    ),
    "listener_closed": _spec(
        *(INFO, "listener protocol cut"),
        "{listener} is closed; {cut} clients were cut",
        "no client can connect any more; those that stayed for the grace were cut",
    ),
    "connection_refused": _spec(
        *(DEBUG, "listener peer reason"),
        "{listener}: {peer} was refused: {reason}",
        "too many connections, an address that is not allowed, or a listener that stops",
    ),
    "connection_faulty": _spec(
        *(DEBUG, "listener peer reason detail"),
        "{listener}: {peer} broke the protocol: {reason} ({detail})",
        "what a client sent cannot be understood, or its session failed; it was closed",
    ),
    "connection_cut": _spec(
        *(INFO, "listener peer reason"),
        "{listener}: {peer} was cut: {reason}",
        "a deadline was over, or the client does not read what it has asked for",
    ),
    "login_failed": _spec(
        *(WARNING, "listener peer name"),
        "{listener}: {peer} is not {name!r}, or nobody of that name is known",
        "a client could not prove who it is",
    ),
    # --- other machines
    "reachable": _spec(
        *(INFO, "endpoint"),
        "other machines can connect at {endpoint}",
        "the host serves clients with allowed keys over the network",
    ),
    "client_refused": _spec(
        *(WARNING, "address why count"),
        "{count} clients were not let in; the last one from {address!r}: {why}",
        "somebody came without an allowed key; told at most once a second",
    ),
    # --- the host
    "started": _spec(INFO, "path epoch", "host of {path} (epoch {epoch})", "a host has opened"),
    "not_served": _spec(
        *(ERROR, "path detail"),
        "{path}: other processes cannot connect: {detail}",
        "the host could not bind its socket; the application itself works",
    ),
    "stopped": _spec(INFO, "path", "host of {path} has stopped", "the file is free again"),
    "connected": _spec(
        *(INFO, "path host epoch"),
        "client of {path}, hosted by process {host} (epoch {epoch})",
        "a process has connected to the host; told in that process",
    ),
    "not_hosted": _spec(
        *(ERROR, "path detail"),
        "{path} has no host, and this process cannot take over: {detail}",
        "the host of a file is gone; the next attempt follows in a second",
    ),
    "unclean_start": _spec(
        *(WARNING, "path epoch cause"),
        "{path} was not closed by its last host; what it had started counts as attempts ({cause})",
        "the last host ended without closing",
    ),
    "drain_started": _spec(
        *(INFO, "running grace_s reason"),
        "draining ({reason}): {running} handlers have {grace_s} s to finish",
        "nothing new is claimed any more",
    ),
    "drain_finished": _spec(
        *(INFO, "finished released stuck seconds"),
        "drained in {seconds} s: {finished} finished, {released} given back, {stuck} stuck",
        "consumers have stopped",
    ),
    "store_full": _spec(
        *(ERROR, "path detail"),
        "{path}: puts are refused: {detail}",
        "the disk is nearly full; acks still succeed",
    ),
    "store_recovered": _spec(
        *(INFO, "path"), "{path}: puts are accepted again", "the disk has room again"
    ),
    "store_failed": _spec(
        *(ERROR, "path code detail"),
        "{path}: the store has stopped: {detail}",
        "nothing is stored any more; open the file again",
    ),
}

#: Fields with texts that handlers, their errors and their code wrote.
WORDS_OF_OTHERS: Final = frozenset({"error", "detail", "cause", "stack"})

#: What each field holds, for the docs.
FIELDS: Final[Mapping[str, str]] = {
    "queue": "name of the queue",
    "group": "name of the consumer group",
    "consumer": "name of the handler's function",
    "id": "of the message, 32 hexadecimal digits",
    "seq": "number of the message in this file",
    "attempt": "which delivery of the message it was, from 1",
    "crashes": "workers and hosts that have died while the message was being handled",
    "count": "how many messages",
    "upto": "number of the last one of them",
    "sink": "name of the sink, see sinkId",
    "error": "type and text of what was raised; of a worker: the traceback, or a sentence",
    "reason": "code of the dead letter's reason (lifecycle.md); of a drain: the signal, or stop; "
    "of a worker: how much it has done, or has become; of a Spark job: timeout, drain, lease_lost "
    "or request",
    "detail": "a sentence for people",
    "endpoint": "where other machines connect, tcp://",
    "address": "of another machine",
    "why": "why it was not let in",
    "code": "of the error that stopped the store, for programs",
    "cause": "what is known of the end of the last host, or of the worker",
    "delay_s": "seconds until the next attempt",
    "timeout_s": "seconds that the handler was allowed",
    "grace_s": "seconds that handlers have to finish",
    "seconds": "how long it took, or has taken so far",
    "done": "tasks of Spark that have ended",
    "tasks": "tasks of Spark that are known so far",
    "by": "who did it: program, or the command line",
    "what": "messages, or dead letters",
    "concurrency": "how many messages the consumer handles at once",
    "kind": "thread, async or process",
    "thread": "name of the thread",
    "stuck": "threads or tasks that nobody waits for any more",
    "stack": "where the coroutine is, as a traceback",
    "changes": "the settings that were replaced",
    "running": "messages in handlers",
    "finished": "messages whose handlers ended in time",
    "released": "messages given back",
    "worker": "name of the process",
    "number": "which of the worker processes of its consumer, from 1",
    "messages": "ids of the first messages whose handlers ran",
    "client": "name of the process",
    "pid": "the process",
    "rss": "bytes of memory that it had at the last look, 0 if nobody looked",
    "started": "deliveries whose handlers ran",
    "host": "the process that hosts the file",
    "path": "the database file; of folder_… and file_…: the folder, the file",
    "epoch": "counts the openings of the file",
    "listener": "address of the listener, as a URL",
    "protocol": "name of the protocol of a listener",
    "peer": "address of the client of a listener",
    "cut": "how many clients were cut because they stayed",
    "name": "what the client calls itself",
}
