"""A module whose documents say what it does with them. `python -m tests.systems.pipeline.serve NAME`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from redrive.systems.pipeline import Document, DocumentRef, Module, PipeStream, Rejected
from redrive.systems.pipeline.wire import Tls


async def process(document: Document, stream: PipeStream) -> Document | DocumentRef | None:
    match stream.metadata["do"]:
        case "upper":
            return Document(document_id=document.document_id, content=document.content.upper())
        case "slow":
            await asyncio.sleep(0.2)
        case "reject":
            raise Rejected("couldn't parse this PDF")
        case "hang":
            await asyncio.Event().wait()
        case "fail":
            raise RuntimeError("it fails every time")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "reference":
            return DocumentRef(key="elsewhere", size=7)
    return None


def main(name: str, consul: str = "", port: str = "0", cert: str = "", key: str = "") -> None:
    module = Module(name)
    module.process(process)
    tls = Tls(cert=cert, key=key) if cert else None
    module.run(port=int(port), consul=consul or None, tls=tls, started=lambda address: print(address, flush=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
