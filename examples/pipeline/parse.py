"""The first module: text out of a file. What is no text is rejected, and its stream goes on as it is."""

from redrive.systems.pipeline import Document, Module, Rejected

module = Module("parse")


@module.process
def parse(document: Document) -> Document:
    try:
        text = document.content.decode()
    except UnicodeDecodeError as error:
        raise Rejected(f"{document.document_id} is no text: {error.reason}") from error
    return Document(document_id=document.document_id, content_type="text/plain", content=text.strip().encode())
