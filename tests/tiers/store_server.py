"""An S3 endpoint in a process of its own: prints its address, and ends when its standard input does."""

from __future__ import annotations

import logging
import sys

from moto.moto_server.werkzeug_app import MotoRequestHandler
from moto.server import ThreadedMotoServer

if __name__ == "__main__":
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    MotoRequestHandler.disable_nagle_algorithm = True  # it would hold back each body until the head was acknowledged
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    print("{}:{}".format(*server.get_host_and_port()), flush=True)
    sys.stdin.read()
    server.stop()
