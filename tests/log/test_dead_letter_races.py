"""A message on its way to the dead-letter topic when its subscription is moved, or its connection is replaced."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from tests.log.consuming import numbered, receive, subscribe
from tests.log.reading import eventually, values
from tests.log.sites import Site
from tests.log.test_reconnect_races import VALUES


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_message_of_a_subscription_that_is_moved_meanwhile_comes_again(site: Site, kind: str) -> None:
    """Seek, as an operator, when a message is on its way there: who receives hears nothing of it, and nothing is lost.

    In order it is counted on and goes there then; what a shared subscription hands out after a seek counts anew.
    """
    log, operator = site.connect(), site.connect()
    numbered(log)
    consumer = subscribe(log, type=kind, negative_acknowledge_delay=0.0, max_redeliveries=0)
    sought: list[int] = []

    inner = consumer._dead_letters.send

    def send(*arguments: Any) -> None:
        if not sought:
            sought.append(operator.seek("t", "s", "earliest").epoch)
        inner(*arguments)

    with patch.object(consumer._dead_letters, "send", send):
        message = receive(consumer)
        consumer.negative_acknowledge(message)
        found: list[bytes] = []

        def is_sought() -> bool:
            if (message := consumer.receive(0.01)) is not None and [message.epoch] == sought:
                found.append(message.value)
            return len(found) >= (9 if kind == "exclusive" else 10)

        eventually(is_sought)
    assert sorted(found) == (VALUES[1:] if kind == "exclusive" else VALUES)
    if kind == "exclusive":
        assert values(log, "t-s-DLQ") == VALUES[:1]
