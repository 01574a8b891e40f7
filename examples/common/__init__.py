"""Code shared by the training examples: the handwritten digits, and processes that are replaced if they are killed."""
