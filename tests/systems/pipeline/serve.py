"""A module whose documents say what it does with them. `python -m tests.systems.pipeline.serve NAME`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from redrive.systems.pipeline import Document, DocumentRef, Module, PipeStream, ProcessResponse, Rejected
from redrive.systems.pipeline.wire import Tls

Answer = Document | DocumentRef | ProcessResponse | None


async def process(document: Document, stream: PipeStream) -> Answer:
    match stream.metadata["do"]:
        case "tally":
            tally(Path(stream.metadata["tally"]), f"{stream.stream_id} {stream.hop_count}")
            return Document(document_id=document.document_id, content=document.content.upper())
        case "half":
            made = Document(content=b"half of it")
            return ProcessResponse(success=False, error_message="only half", document=made, metadata={"left": "open"})
        case "gate":
            await asyncio.to_thread(wait_at, Path(stream.metadata["gate"]))
        case "upper":
            return Document(document_id=document.document_id, content=document.content.upper())
        case "grow":
            return Document(content=b"x" * int(stream.metadata["size"]))
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


def tally(file: Path, line: str) -> None:
    """Whoever is killed now has written the line, or has not."""
    place = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(place, f"{line}\n".encode())
    os.close(place)


def wait_at(gate: Path) -> None:
    """Until the test opens it; the test sees that somebody stands there."""
    gate.with_suffix(".reached").touch()
    while not gate.exists():
        time.sleep(0.02)


def main(name: str, consul: str = "", port: str = "0", cert: str = "", key: str = "", ca: str = "") -> None:
    module = Module(name)
    module.process(process)
    tls = Tls(cert=cert, key=key, ca=ca or None) if cert else None
    module.run(port=int(port), consul=consul or None, tls=tls, started=lambda address: print(address, flush=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
