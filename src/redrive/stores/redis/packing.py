"""Packs the failures of letters: stacks are most of a letter, and most of a stack is in every other stack."""

from __future__ import annotations

import zlib

_WINDOW, _MEMORY = -12, 6  # 4 KB without a checksum: what is packed here is short, and Redis keeps it whole
_VOCABULARY = b"".join(
    (
        b"ValueError: KeyError: TypeError: AttributeError: RuntimeError: TimeoutError: OSError: ",
        b"ConnectionError: ConnectionRefusedError: ConnectionResetError: [Errno 111] Connect call failed ",
        b"transient\xc3network\xc3permission\xc2validation\xc2\xa6decode\xa8delivery",
        b"\n\nDuring handling of the above exception, another exception occurred:\n\n",
        b"\n\nThe above exception was the direct cause of the following exception:\n\n",
        b"    async with self.    with self.    raise self.    return await asyncio.wait_for(\n",
        b'  File "/usr/local/lib/python3.12/asyncio/tasks.py", line 520, in wait_for\n    raise exc\n    raise error\n',
        b"    return await self.    result = await self.    response = await self.    data = await self.",
        b"redrive.systems..senders.base.SendError\xd9SMTP 550: 5.1.1 ",
        b"\xa9permanent\xc2\xd7\xff\xa8resource\xc3\xd7\xff",
        b"\x01\xa6handle\xa3421\xda\x02",
        b'Traceback (most recent call last):\n  File "/usr/lib/python3.11/contextlib.py", line 231, in __aexit__\n',
        b"    await self.gen.athrow(typ, value, traceback)\n    await self.gen.athrow(value)\n",
        b'  File "/app/.venv/lib/python3.11/site-packages/redrive/systems//senders/smtp.py", line 1, in _connection\n',
        b"    with _translated():\n, in __exit__\n    raise _refused(answers, []) from None\n",
        b"redrive.systems..senders.base.SendError: SMTP 421: ",
        b"\n\x91\xd9contextlib:_AsyncGeneratorContextManager.__aexit__\xa8",
    )
)
"""What a packed text can point to, the most frequent last. It belongs to what is kept: never change it, add another one
under a new first byte."""
_FIRST = b"\x01"


def pack(data: bytes) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, _WINDOW, _MEMORY, zlib.Z_DEFAULT_STRATEGY, _VOCABULARY)
    return _FIRST + packer.compress(data) + packer.flush()


def unpack(packed: bytes) -> bytes:
    """What `pack` was given."""
    if not packed.startswith(_FIRST):
        raise ValueError("packed by a newer version of Redrive: upgrade this one")
    return zlib.decompressobj(_WINDOW, _VOCABULARY).decompress(packed[1:])
