"""Letters, ledger and documents in PostgreSQL."""
