"""The app that Dramatiq's guide begins with, in our words: an actor that counts the words of a page. The two lines of
Redrive are marked.

    dramatiq words --processes 1          works, until Ctrl-C
    python words.py file:///tmp/page.txt  sends a page to be counted
"""

from __future__ import annotations

import os
import sys
from urllib.request import urlopen

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from redrive.integrations.dramatiq import RedriveDramatiq  # Redrive

broker = RedisBroker(url=os.environ.get("BROKER", "redis://localhost:6379/0"))
broker.add_middleware(RedriveDramatiq(store="sqlite:///letters.db"))  # Redrive: what dies is a letter
dramatiq.set_broker(broker)


@dramatiq.actor(max_retries=1, min_backoff=100, max_backoff=200)
def count_words(url: str) -> None:
    with urlopen(url) as page:
        count = len(page.read().split())
    print(f"There are {count} words at {url}", flush=True)


if __name__ == "__main__":
    for url in sys.argv[1:]:
        count_words.send(url)
        print(f"sent {url}")
