"""The link process of an end of a channel: it moves messages between shared memory and connections."""
