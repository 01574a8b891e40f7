"""Communication between processes: messages, queues, broadcasts, locks, pipes, pools, and starting processes."""
