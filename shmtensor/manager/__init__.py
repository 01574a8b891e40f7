"""The manager: a daemon that creates segments, passes their descriptors and reclaims the memory of dead clients.

`client` is the client side, `daemon` the daemon itself; the other modules are used by both.
"""
