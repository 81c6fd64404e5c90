"""PostgreSQL as our backends see it: opened by a URL, its tables made by migrations, its errors translated."""

from redrive.errors import MissingExtra

try:
    import psycopg  # noqa: F401 - asked for here, before anything of this package needs it
except ImportError as error:
    raise MissingExtra("PostgreSQL", "postgresql") from error
