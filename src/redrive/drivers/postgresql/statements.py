"""SQL in files: one statement each, its keys and indexes explained at its top."""

from __future__ import annotations

from functools import cache
from importlib import resources


@cache
def statement(package: str, name: str, schema: str) -> str:
    """`statement("redrive.stores.postgresql", "claim", "redrive")` is that package's sql/claim.sql, in that schema.

    `{schema}` stands before every table, since a search_path is lost behind PgBouncer. Comments stay here.
    """
    text = resources.files(package).joinpath("sql", f"{name}.sql").read_text("utf-8")
    lines = (line.partition("--")[0].rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if line.strip()).rstrip(";").replace("{schema}", schema)
