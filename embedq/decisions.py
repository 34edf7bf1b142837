"""What a handler raises or returns to decide about its message.

DeliveryOutcome
└── Retry                └── Reject

Knows: what was decided. Does not know: what comes of it, the errors (errors.py).
"""

from datetime import timedelta


class DeliveryOutcome(Exception):
    """Raised or returned by a handler to decide what happens to its message.

    Outside the tree on purpose: `except EmbedqError` in a handler must not eat a decision.
    """


class Retry(DeliveryOutcome):
    """Deliver the message again; `delay` replaces the one of the retry policy.

    `delay` is a duration ("30s", seconds or timedelta), None leaves it to the policy.
    """

    def __init__(self, delay: str | float | timedelta | None = None) -> None:
        """Keep the delay as it was given; the broker validates it when it settles."""
        super().__init__(delay)
        self.delay = delay


class Reject(DeliveryOutcome):
    """Dead-letter the message now, for this reason, whatever attempts are left."""

    def __init__(self, reason: str = "") -> None:
        """Keep the reason, shown with the dead letter."""
        super().__init__(reason)
        self.reason = reason
