"""Other people's workers, our letters: Celery, Dramatiq, RQ and their kin.

A worker that is not ours reports what died in it, and what succeeded after a replay. Each report is on disk before the
worker goes on, and a courier beside it brings the reports to the store:

    worker ──▶ reporter ──▶ spool (files) ──▶ courier ──▶ store
                                                            │ replay
    worker ◀── its own broker ◀── a transport that only sends ◀┘

reports.py    what is reported, as values
spool.py      a directory of reports
courier.py    brings them to a store; one courier for each directory and machine
host.py       where a courier runs: in a thread, or in a process where threads are not what they seem (gevent)
reporter.py   what an integration holds
letters.py    letters from what another worker knows of a failure
send_only.py  the ground of transports that only carry letters back

Each integration is a folder beside these, and is found by its entry point in `redrive.systems`, as a system is.
"""
