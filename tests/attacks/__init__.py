"""A man in the middle of a job's connections, the attacks it can make, and how jobs have to take them."""
