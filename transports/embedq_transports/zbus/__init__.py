"""zbus 1.0: HTTP/1.1 and WebSocket on one port; queues with channels.

Knows: which rooms there are. `wire` turns bytes into events, `answers` writes; `bodies`, `tags`
and `signing` are the rules that both dialects share.
Does not know: sockets and how messages are stored.
"""
