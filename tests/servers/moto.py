"""moto's server, the second that speaks the protocol of Amazon SQS: what both servers agree on is less likely to be a
habit of one of them."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.servers import web
from tests.servers.base import Server
from tests.servers.ports import LOOPBACK


class Moto(Server):
    """Its queues are in memory, and gone with it. It comes with the tools of the tests, so nothing is to be fetched."""

    name = "moto"

    @property
    def endpoint(self) -> str:
        return f"http://{self.address}"

    @property
    def url(self) -> str:
        return f"sqs://x:x@{self.address}?tls=false&region=us-east-1"

    @property
    def addresses(self) -> Mapping[str, str]:
        return {"endpoint": self.endpoint, "url": self.url}

    def command(self) -> Sequence[str | Path]:
        return [sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(self.port)]

    def is_ready(self) -> bool:
        return bool(web.call("GET", f"{self.endpoint}/moto-api/"))
