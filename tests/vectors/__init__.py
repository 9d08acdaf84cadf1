"""The known-answer vectors under vectors/, made and checked by a second implementation."""
