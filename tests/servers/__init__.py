"""Real servers for tests: fetched, checked and started on loopback, without containers."""
