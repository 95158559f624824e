"""A process that creates a topic when a line comes in, and prints what came of it."""

from __future__ import annotations

import sys

from txn_source import TopicExistsError, connect


def main(kind: str, target: str, topic: str) -> None:
    with connect(endpoint=target) if kind == "remote" else connect(target) as log:
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            log.create_topic(topic)
            print("created")
        except TopicExistsError as error:
            print(error.code)


if __name__ == "__main__":
    main(*sys.argv[1:])
