"""Which rollout server answers. verl's own balancer costs a process that imports verl."""

from __future__ import annotations

from typing import Any


class StickyBalancer:
    """The calls of one request id go to one server; a new id goes to the least busy one.

    verl builds it from the YAML of `rollout.router_config_path`, passing the servers by id and
    that YAML's content.
    """

    def __init__(self, servers: dict[str, Any], settings: dict[str, Any] | None = None) -> None:
        del settings
        if not servers:
            raise ValueError("no rollout server to balance between")
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
        if home is None:
            home = min(self._in_flight, key=lambda name: self._in_flight[name])
            # With one server there is nothing to remember.
            if len(self._servers) > 1:
                self._home[request_id] = home
        self._in_flight[home] += 1
        return home, self._servers[home]

    def release_server(self, server_id: str, **_: Any) -> None:
        self._in_flight[server_id] -= 1
