"""What the examples of training share: the handwritten digits, and processes that are replaced when they are killed."""
