"""What is closed at the end of a `with`."""

from __future__ import annotations

from typing import Self


class Closing:
    """A context manager that closes at its end."""

    def close(self) -> None:
        """Ends it."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes it."""
        self.close()
