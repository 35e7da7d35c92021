"""A process that appends until it is killed, and tells of each acknowledgement.

Run as `python appender.py FOLDER SEED`. Prints `ack LOG BASE_OFFSET RECORDS SEED TICKET` once an
append is durable. The parent kills it; what it printed must then be in the folder.
"""

import random
import select
import sys

from headrace.native import Store
from storelog import SMALL, batch

LOGS = 3
IN_FLIGHT = 8


def payload(seed: int, ticket: int) -> list[bytes]:
    """The values of one append: from a few bytes to several pages, and past the journal."""
    chosen = random.Random(f"{seed} {ticket}")
    size = chosen.choice([10, 100, 100, 1000, 1000, 5000, 20_000])
    name = b"%d.%d." % (seed, ticket)
    return [name + chosen.randbytes(size) for _ in range(chosen.randint(1, 3))]


def main(folder: str, seed: int) -> None:
    store = Store.open(folder, **SMALL)
    logs = [store.open_log("s", partition, 1, 0) for partition in range(LOGS)]
    chosen = random.Random(seed)
    waiting: dict[int, tuple[int, int, int]] = {}
    ticket = 0
    while True:
        while len(waiting) < IN_FLIGHT:
            ticket += 1
            partition = chosen.randrange(LOGS)
            values = payload(seed, ticket)
            appended = store.append(logs[partition], batch(*values), ticket, 0)
            waiting[ticket] = (partition, appended.base_offset, len(values))
        store.submit()
        select.select([store.notify_fd()], [], [])
        for completion in store.poll():
            assert completion.error is None, completion.error
            print("ack", *waiting.pop(completion.ticket), seed, completion.ticket)
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
