"""What crosses between processes: messages, queues and broadcasts, locks, pipes, and the processes themselves."""
