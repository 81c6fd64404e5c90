"""The job that RQ's guide begins with, in our words: it counts the words of a page.

python words.py file:///tmp/page.txt   enqueues a page to be counted
"""

from __future__ import annotations

import os
import sys
from urllib.request import urlopen

from redis import Redis
from rq import Queue, Retry

redis = Redis.from_url(os.environ.get("BROKER", "redis://localhost:6379/0"))


def count_words(url: str) -> int:
    with urlopen(url) as page:
        count = len(page.read().split())
    print(f"There are {count} words at {url}", flush=True)
    return count


if __name__ == "__main__":
    for url in sys.argv[1:]:
        Queue("words", connection=redis).enqueue("words.count_words", url, retry=Retry(max=1))
        print(f"sent {url}")
