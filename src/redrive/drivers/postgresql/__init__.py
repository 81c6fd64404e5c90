"""PostgreSQL as our backends see it: opened by a URL, its tables made by migrations, its errors translated."""
