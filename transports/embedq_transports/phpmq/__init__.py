"""PHPMQ: many queues on one port, windows of unacknowledged messages, acks by id.

Knows: which room does what: `wire` turns bytes into events and back.
Does not know: a session or a listener; this version has neither.
"""
