"""The application's side: Broker, Queue, groups, settings, as people use them.

Knows: what the names of the public API promise, and which room does the work.
Does not know: how messages are stored, claimed or run.
"""
