"""What a ready index must know of a waiting message that is more than its number.

Knows: the fields, and what they mean while the message waits and while it is delivered.
Does not know: where the message waits, the store.
"""

from __future__ import annotations

from embedq.lifecycle import Outcome


class Entry:
    """What must be known of a waiting message that is not plain and fresh.

    `attempt` and `crashes` count what has been started so far.
    """

    __slots__ = (
        "attempt",
        "crashes",
        "died_in",
        "key",
        "left_as",
        "max_attempts",
        "priority",
        "suspect",
    )

    def __init__(
        self,
        priority: int = 0,
        attempt: int = 0,
        crashes: int = 0,
        key: str | None = None,
        max_attempts: int | None = None,
    ) -> None:
        self.priority = priority
        self.attempt = attempt
        self.crashes = crashes
        self.key = key
        self.max_attempts = max_attempts
        self.suspect = False  # it was being delivered when its host or worker died
        self.died_in = 0  # the epoch of the host that left its latest delivery open
        self.left_as = Outcome.CRASHED  # what that delivery counts as
