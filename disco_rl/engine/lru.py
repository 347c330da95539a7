"""A cache in memory that forgets what was used longest ago."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class Lru(Generic[V]):
    """Values by key, the least recently used dropped once the weights exceed `limit`."""

    def __init__(self, limit: int):
        self._limit = limit
        self._total = 0
        self._items: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> V | None:
        with self._lock:
            if key not in self._items:
                return None
            self._items.move_to_end(key)
            return self._items[key][0]

    def put(self, key: Hashable, value: V, weight: int = 1) -> None:
        """Keeps `value`; the newest one stays even where it alone exceeds the limit."""
        with self._lock:
            if key in self._items:
                self._total -= self._items.pop(key)[1]
            self._items[key] = (value, weight)
            self._total += weight
            while self._total > self._limit and len(self._items) > 1:
                self._total -= self._items.popitem(last=False)[1][1]

    def __len__(self) -> int:
        return len(self._items)
