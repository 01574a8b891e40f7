"""The manager: the daemon that creates segments, passes their descriptors and reclaims what the dead held.

`client` is the one way to reach it from Python; `daemon` is the daemon itself. What both need lies here too.
"""
