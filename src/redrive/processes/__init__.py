"""Several worker processes under one supervisor: `redrive run --processes 4`.

supervisor.py   starts them, stops them, loads them anew; its exit code is that of the whole
slot.py         keeps the process of one number running; restarts.py says after which pause, and how often
process.py      one child process, and the socket to it
child.py        the other end of that socket, inside the child
overseer.py     who looks after a worker: a supervisor, systemd, or nobody
wire.py         what the two say to each other
merge.py        the metrics of all of them as those of one
causes.py  cpus.py  changes.py  systemd.py   what a process died of, how many CPUs are ours, what was edited, sd_notify
"""
