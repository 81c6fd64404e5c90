"""The second module: the same, but louder. Its first version has a bug: it fails with documents that have a digit."""

import os

from redrive.systems.pipeline import Document, Module

module = Module("shout")


@module.process
def shout(document: Document) -> Document:
    text = document.content
    if os.environ.get("SHOUT_VERSION", "1") == "1" and any(byte in b"0123456789" for byte in text):
        raise ValueError("nobody taught me to shout digits")
    return Document(document_id=document.document_id, content=text.upper())
