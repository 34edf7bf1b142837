"""SSPQ: one queue per listener, one unconfirmed message per connection.

Knows: which room does what: `wire` turns bytes into events and back.
Does not know: a session or a listener; this version has neither.
"""
