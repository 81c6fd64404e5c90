"""pipeline: streams travel through a graph of gRPC modules over Kafka, with one DLQ for each node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.systems.base import exports

if TYPE_CHECKING:
    from redrive.systems.pipeline.engine import Engine
    from redrive.systems.pipeline.error_types import ErrorType
    from redrive.systems.pipeline.graph import Graph, GraphNode, Node
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
    "GraphNode",
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

__getattr__ = exports(
    __name__,
    {
        "engine": ("Engine",),
        "faults": ("ErrorType",),
        "graph": (
            "Graph",
            "GraphNode",
            "Node",
        ),
        "module": (
            "Module",
            "Rejected",
        ),
        "pipeline_pb2": (
            "DlqConfig",
            "DlqMessage",
            "Document",
            "DocumentRef",
            "PipeStream",
            "ProcessRequest",
            "ProcessResponse",
            "Step",
        ),
        "repository": (
            "DirectoryRepository",
            "Repository",
            "open_repository",
        ),
    },
    extra="grpc",
)
