"""MMQP 0.1: one request on a connection, an answer or silence, then the server closes.

Knows: the transport, its options, which files speak it: `wire` reads requests, `answers` and
`requests` build and read frames, `session` connects them with queues.
Does not know: sockets and how messages are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from embedq.errors import EmbedqError
from embedq.limits import KIB
from embedq.net import Connection, Session, Site
from embedq_transports.mmqp.config import read_queues
from embedq_transports.mmqp.limits import MMQP_LIMITS
from embedq_transports.mmqp.session import QUIET_S, MmqpSession, Terms


class MmqpTransport:
    """The transport. It has options of its own.

    `create` (false): whether a message makes the queue that it names. `config`: a
    queue_config.json of the original, whose queues are made at once. `quiet` (75ms): after which
    pause a request that may end has ended. `answer_bytes` (17 MiB): what an answer has at most,
    unless it is a single record.
    """

    name: Final = "mmqp"
    default_port: Final = 8787
    has_login: Final = True

    def open(self, site: Site) -> Callable[[Connection], Session]:
        """Return what makes a session. Raises InvalidOption, also for faults of the config."""
        site.end_confirms = True
        options, limits = site.options, site.limits
        config = options.text("config")
        queues = () if config is None else read_queues(config)
        terms = Terms(
            limits=replace(
                MMQP_LIMITS,
                body_bytes=min(MMQP_LIMITS.body_bytes, limits.message_bytes),
                text_bytes=min(MMQP_LIMITS.text_bytes, limits.name_bytes),
                answer_bytes=options.number(
                    "answer_bytes", MMQP_LIMITS.answer_bytes, 1 * KIB, MMQP_LIMITS.answer_bytes
                ),
            ),
            create=options.flag("create", default=False),
            queues=frozenset(queues),
            quiet_s=options.seconds("quiet", QUIET_S),
        )
        for queue in queues:
            site.broker.declare(queue, partial(_declared, site, queue))
        return lambda connection: MmqpSession(connection, terms)


def _declared(site: Site, queue: str, error: EmbedqError | None) -> None:
    if error is not None:
        site.count("not_declared", queue)


MMQP: Final = MmqpTransport()
