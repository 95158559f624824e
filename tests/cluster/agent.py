"""Runs functions of a module on a host, one after the other, as they are asked for through two pipes in a folder."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from pathlib import Path

if __name__ == "__main__":
    module, folder = sys.argv[1:]
    with (
        (Path(folder) / "requests").open() as requests,
        (Path(folder) / "answers").open("w") as answers,
        contextlib.redirect_stdout(sys.stderr),
    ):
        for line in requests:
            name, arguments = json.loads(line)
            try:
                answer = {"value": getattr(importlib.import_module(module), name)(**arguments)}
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), file=answers, flush=True)
