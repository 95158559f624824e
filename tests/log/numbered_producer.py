"""A process that writes numbered messages until it is killed, and prints a line when something was acknowledged."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from txn_source import Batching, connect

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.log.numbered import TOPIC, produce

    kind, target, seed = sys.argv[1:]
    with connect(endpoint=target) if kind == "remote" else connect(target) as log:
        producer = log.producer(TOPIC, transactional_id="numbered", batching=Batching(linger_s=1e6))
        for step in produce(log, producer, seed):
            print(json.dumps(step), flush=True)
