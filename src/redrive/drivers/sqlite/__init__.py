"""The SQLite file that the embedded queue and the embedded store share."""
