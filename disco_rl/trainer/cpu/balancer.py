"""Which rollout server answers. verl's own balancer costs a process that imports verl."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class StickyBalancer:
    """The calls of one request id go to one server; a new id goes to the least busy one.

    verl builds it from the YAML of `rollout.router_config_path`, passing the servers by id (none,
    where all of a trainer's rollout has GPUs of its own) and that YAML's content.
    """

    def __init__(self, servers: dict[str, Any], settings: dict[str, Any] | None = None) -> None:
        del settings
        self._servers = dict(servers)
        self._in_flight = dict.fromkeys(self._servers, 0)
        self._home: dict[str, str] = {}

    def require_acquire_fields(self) -> list[str]:
        """verl asks which arguments of a generate call the balancer wants: only the request id."""
        return []

    def require_release_fields(self) -> list[str]:
        return []

    def acquire_server(self, request_id: str, **_: Any) -> tuple[str, Any]:
        home = self._home.get(request_id)
        if home is None or home not in self._servers:  # it may have been removed
            if not self._servers:
                raise RuntimeError("No available servers in load balancer")  # verl knows the words
            home = min(self._in_flight, key=lambda name: self._in_flight[name])
            # With one server there is nothing to remember.
            if len(self._servers) > 1:
                self._home[request_id] = home
        self._in_flight[home] += 1
        return home, self._servers[home]

    def release_server(self, server_id: str, **_: Any) -> None:
        if server_id in self._in_flight:  # else it was removed meanwhile
            self._in_flight[server_id] -= 1

    def add_servers(self, servers: Mapping[str, Any]) -> None:
        self._servers.update(servers)
        self._in_flight.update(dict.fromkeys(servers, 0))

    def remove_servers(self, server_ids: Iterable[str]) -> None:
        for server_id in server_ids:
            self._servers.pop(server_id, None)
            self._in_flight.pop(server_id, None)

    def clear_sticky_cache(self) -> dict[str, Any]:
        """Lets the next call of every request id choose anew; returns what verl logs of it."""
        cleared = len(self._home)
        self._home.clear()
        return {"cleared_entries": cleared, "server_loads": dict(self._in_flight)}
