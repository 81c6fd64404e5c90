"""The service `Module` on the wire: its method by name, its limits, its TLS."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
from msgspec import Struct

from redrive.errors import ConfigError
from redrive.systems.pipeline.pipeline_pb2 import PipeStream, ProcessRequest, ProcessResponse

SERVICE = "redrive.pipeline.Module"
METHOD = f"/{SERVICE}/Process"
EACH = f"/{SERVICE}/ProcessEach"
END: Any = grpc.aio.EOF  # type: ignore[attr-defined]
"""Read instead of a message: the other side has ended the stream."""
MOST_INLINE = 4 << 20
"""The largest content of a document that travels inline."""
MOST_MESSAGE = MOST_INLINE + (1 << 20)
"""The largest message of a call: history and metadata travel with the document."""
_STREAM = b"\x12"  # field 2 of a ProcessRequest, with a length before it
SIZES: list[tuple[str, Any]] = [
    ("grpc.max_send_message_length", MOST_MESSAGE),
    ("grpc.max_receive_message_length", MOST_MESSAGE),
]
CHANNEL: list[tuple[str, Any]] = [
    *SIZES,
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),  # a module that was restarted is found again at once
    ("grpc.max_reconnect_backoff_ms", 250),
    ("grpc.min_reconnect_backoff_ms", 5000),  # how long to connect may take: no pause, whatever its name says
    ("grpc.keepalive_time_ms", 30_000),
]


class Tls(Struct, frozen=True, kw_only=True):
    """Files in PEM. `ca` alone checks the other side; `cert` and `key` show who we are."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def of_client(self) -> grpc.ChannelCredentials | None:
        """None: in the clear."""
        if self == Tls():
            return None
        self._check()
        return grpc.ssl_channel_credentials(_read(self.ca), _read(self.key), _read(self.cert))

    def of_server(self) -> grpc.ServerCredentials | None:
        """With `ca`, only callers with a certificate of it are let in."""
        if self == Tls():
            return None
        self._check()
        if self.cert is None:
            raise ConfigError("TLS of a module needs its certificate and its key: give `cert` and `key`")
        pair = (_read(self.key) or b"", _read(self.cert) or b"")
        return grpc.ssl_server_credentials([pair], _read(self.ca), require_client_auth=self.ca is not None)

    def _check(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ConfigError("TLS: a certificate and its key go together; one of them is missing")


def _read(path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"TLS: {path} cannot be read: {error.strerror}") from error


def open_channel(address: str, tls: Tls) -> grpc.aio.Channel:
    credentials = tls.of_client()
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=CHANNEL)
    return grpc.aio.secure_channel(address, credentials, options=CHANNEL)


def process_method(channel: grpc.aio.Channel) -> Any:
    """`await method(request, timeout=…)` gives a ProcessResponse. The request is one as it travels."""
    made: Any = channel
    return made.unary_unary(METHOD, response_deserializer=ProcessResponse.FromString)


def each_method(channel: grpc.aio.Channel) -> Any:
    """`method()` gives a stream to write requests to and to read ProcessResponses from."""
    made: Any = channel
    return made.stream_stream(EACH, response_deserializer=ProcessResponse.FromString)


def request_for(node_id: str) -> Callable[[bytes], bytes]:
    """Makes ProcessRequests, as they travel, of PipeStreams, as they came: byte for byte, unknown fields and all."""
    begin = ProcessRequest(node_id=node_id).SerializeToString() + _STREAM
    return lambda stream: begin + varint(len(stream)) + stream


def varint(number: int) -> bytes:
    """As protobuf writes the length of what follows."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def inline_size(stream: PipeStream | ProcessResponse) -> int:
    return len(stream.document.content) if stream.HasField("document") else 0
