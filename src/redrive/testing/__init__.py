"""What plug-in authors test with: a clock of their own, builders, conformance suites and the fault injector.

`clock` and `builders` need nothing; `transports` and `stores` hold the suites, and need pytest and pytest-asyncio.
"""
