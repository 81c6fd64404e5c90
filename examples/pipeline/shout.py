"""The second module: the same, but louder."""

from redrive.systems.pipeline import Document, Module

module = Module("shout")


@module.process
def shout(document: Document) -> Document:
    return Document(document_id=document.document_id, content=document.content.upper())
