"""MMQP 0.1: one request on a connection, an answer or silence, then the server closes.

Knows: which files speak it: `wire` reads requests, `answers` and `requests` build and read frames.
Does not know: sessions and listeners; the transport itself comes with them.
"""
