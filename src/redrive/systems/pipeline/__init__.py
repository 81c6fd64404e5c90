"""pipeline: streams travel through a graph of gRPC modules over Kafka, with one DLQ for each node."""

from redrive.errors import MissingExtra

try:
    import google.protobuf  # noqa: F401
    import grpc  # noqa: F401
except ImportError as error:
    raise MissingExtra("the pipeline", "grpc") from error

from redrive.systems.pipeline.engine import Engine
from redrive.systems.pipeline.faults import ErrorType
from redrive.systems.pipeline.graph import Graph, Node
from redrive.systems.pipeline.module import Module, Rejected
from redrive.systems.pipeline.pipeline_pb2 import (
    DlqConfig,
    DlqMessage,
    Document,
    DocumentRef,
    PipeStream,
    ProcessRequest,
    ProcessResponse,
    Step,
)
from redrive.systems.pipeline.repository import DirectoryRepository, Repository, open_repository

__all__ = [
    "DirectoryRepository",
    "DlqConfig",
    "DlqMessage",
    "Document",
    "DocumentRef",
    "Engine",
    "ErrorType",
    "Graph",
    "Module",
    "Node",
    "PipeStream",
    "ProcessRequest",
    "ProcessResponse",
    "Rejected",
    "Repository",
    "Step",
    "open_repository",
]
