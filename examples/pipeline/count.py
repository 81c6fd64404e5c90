"""The third module: how many words. It adds to the stream's metadata, and leaves the document as it is."""

from redrive.systems.pipeline import Document, Module, ProcessResponse

module = Module("count")


@module.process
async def count(document: Document) -> ProcessResponse:
    return ProcessResponse(success=True, metadata={"words": str(len(document.content.split()))})
