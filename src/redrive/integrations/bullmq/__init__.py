"""BullMQ: the failed jobs of Node's queues become letters, and a replay moves them back to wait. No Node code changes.

keys.py        the names that BullMQ gives to what it keeps in Redis
jobs.py        a job as its hash in Redis, and its letter
transport.py   bullmq+redis://: the way back, and what `redrive collect` reads
watch.py       `redrive bullmq watch`: letters as jobs fail, and resolved as their replays succeed
"""
