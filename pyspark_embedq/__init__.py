"""Lets Spark find `format("embedq")` by itself: it looks into modules whose names begin like this.

Knows: the name that Spark looks for in such a module.
Does not know: anything else. Every session of Spark imports this, whether it uses embedq or not.
"""

from embedq.spark.source import EmbedqDataSource as DefaultSource

__all__ = ["DefaultSource"]
