"""Connections that never ask for anything: the web server itself would wait for them for ever."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol


class ImpatientProtocol(H11Protocol):
    """HTTP, for clients that send a whole request soon after they have connected."""

    seconds: ClassVar[float] = 10.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        asyncio.get_running_loop().call_later(self.seconds, self._give_up, transport)

    def _give_up(self, transport: Any) -> None:
        asked: Any = self.cycle
        # a socket that became a WebSocket has another protocol by now
        if asked is None and transport.get_protocol() is self:
            transport.abort()
