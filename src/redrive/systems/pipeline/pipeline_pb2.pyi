import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PipeStream(_message.Message):
    __slots__ = ("stream_id", "document", "document_ref", "hop_count", "history", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    STREAM_ID_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_REF_FIELD_NUMBER: _ClassVar[int]
    HOP_COUNT_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    stream_id: str
    document: Document
    document_ref: DocumentRef
    hop_count: int
    history: _containers.RepeatedCompositeFieldContainer[Step]
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, stream_id: _Optional[str] = ..., document: _Optional[_Union[Document, _Mapping]] = ..., document_ref: _Optional[_Union[DocumentRef, _Mapping]] = ..., hop_count: _Optional[int] = ..., history: _Optional[_Iterable[_Union[Step, _Mapping]]] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Document(_message.Message):
    __slots__ = ("document_id", "content_type", "content", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DOCUMENT_ID_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    document_id: str
    content_type: str
    content: bytes
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, document_id: _Optional[str] = ..., content_type: _Optional[str] = ..., content: _Optional[bytes] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DocumentRef(_message.Message):
    __slots__ = ("document_id", "key", "content_type", "size", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DOCUMENT_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    document_id: str
    key: str
    content_type: str
    size: int
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, document_id: _Optional[str] = ..., key: _Optional[str] = ..., content_type: _Optional[str] = ..., size: _Optional[int] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class Step(_message.Message):
    __slots__ = ("node_id", "module", "outcome", "error_message", "started_at", "ended_at", "attempt", "hop", "message_id", "engine", "instance")
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[Step.Outcome]
        OK: _ClassVar[Step.Outcome]
        FAILED: _ClassVar[Step.Outcome]
    UNKNOWN: Step.Outcome
    OK: Step.Outcome
    FAILED: Step.Outcome
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    MODULE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    HOP_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    module: str
    outcome: Step.Outcome
    error_message: str
    started_at: _timestamp_pb2.Timestamp
    ended_at: _timestamp_pb2.Timestamp
    attempt: int
    hop: int
    message_id: str
    engine: str
    instance: str
    def __init__(self, node_id: _Optional[str] = ..., module: _Optional[str] = ..., outcome: _Optional[_Union[Step.Outcome, str]] = ..., error_message: _Optional[str] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., attempt: _Optional[int] = ..., hop: _Optional[int] = ..., message_id: _Optional[str] = ..., engine: _Optional[str] = ..., instance: _Optional[str] = ...) -> None: ...

class DlqMessage(_message.Message):
    __slots__ = ("stream", "error_type", "error_message", "failed_at", "retry_count", "failed_node_id", "original_topic", "original_offset")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    ERROR_TYPE_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FAILED_AT_FIELD_NUMBER: _ClassVar[int]
    RETRY_COUNT_FIELD_NUMBER: _ClassVar[int]
    FAILED_NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_TOPIC_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    stream: PipeStream
    error_type: str
    error_message: str
    failed_at: _timestamp_pb2.Timestamp
    retry_count: int
    failed_node_id: str
    original_topic: str
    original_offset: int
    def __init__(self, stream: _Optional[_Union[PipeStream, _Mapping]] = ..., error_type: _Optional[str] = ..., error_message: _Optional[str] = ..., failed_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., retry_count: _Optional[int] = ..., failed_node_id: _Optional[str] = ..., original_topic: _Optional[str] = ..., original_offset: _Optional[int] = ...) -> None: ...

class DlqConfig(_message.Message):
    __slots__ = ("enabled", "topic", "max_retries", "retry_backoff")
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRIES_FIELD_NUMBER: _ClassVar[int]
    RETRY_BACKOFF_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    topic: str
    max_retries: int
    retry_backoff: _duration_pb2.Duration
    def __init__(self, enabled: _Optional[bool] = ..., topic: _Optional[str] = ..., max_retries: _Optional[int] = ..., retry_backoff: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ProcessRequest(_message.Message):
    __slots__ = ("node_id", "stream")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    stream: PipeStream
    def __init__(self, node_id: _Optional[str] = ..., stream: _Optional[_Union[PipeStream, _Mapping]] = ...) -> None: ...

class ProcessResponse(_message.Message):
    __slots__ = ("success", "error_message", "document", "document_ref", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_REF_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    success: bool
    error_message: str
    document: Document
    document_ref: DocumentRef
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, success: _Optional[bool] = ..., error_message: _Optional[str] = ..., document: _Optional[_Union[Document, _Mapping]] = ..., document_ref: _Optional[_Union[DocumentRef, _Mapping]] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...
