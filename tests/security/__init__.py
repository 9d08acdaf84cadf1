"""What the project claims of its cryptography, shown on real jobs."""
