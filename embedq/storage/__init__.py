"""The storage room: a narrow port, a store in a SQLite file and one in memory.

Knows: what a message is on disk and how batches become durable.
Does not know: when a message may move; that is the broker's.
"""
