"""Commands that look at a manager and its group: they read reports and shared memory, and change nothing."""
