"""Accounts: what becomes of every message while workers are killed again and again, for each broker."""
