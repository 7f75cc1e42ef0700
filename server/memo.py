"""Results that need not be found again while a server lives."""

import hashlib
from typing import Final, Generic, TypeVar

V = TypeVar("V")


class Memo(Generic[V]):
    """The last results, by what they are of."""

    LIMIT: Final = 16

    def __init__(self) -> None:
        self._kept: dict[str, V] = {}

    @staticmethod
    def key(*parts: object) -> str:
        """A short name for what a result is of: equal parts have equal ones."""
        return hashlib.sha256(repr(parts).encode("utf-8", "backslashreplace")).hexdigest()

    def get(self, key: str) -> V | None:
        """The result of that name, where it is still kept."""
        return self._kept.get(key)

    def put(self, key: str, result: V) -> None:
        """Keep a result; the oldest goes when there are too many."""
        self._kept.pop(key, None)
        self._kept[key] = result
        while len(self._kept) > self.LIMIT:
            self._kept.pop(next(iter(self._kept)))
