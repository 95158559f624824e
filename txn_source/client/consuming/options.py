"""How a consumer behaves."""

from __future__ import annotations

from dataclasses import dataclass

from txn_source.model.errors import InvalidArgumentError
from txn_source.model.units import is_number, is_whole

_MAX_NUMBER = 1_000_000


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """How a consumer behaves; times in seconds.

    ``consumer_name``: shows in the subscription's stats.
    ``queue_size``: so many messages are delivered ahead of the caller, softly: one entry always is. Only references are
    kept, no messages. None is 100,000, or 1,000 of a shared subscription, whose messages others could have, and with
    ``max_redeliveries``.
    ``acknowledge_interval``: acknowledgements wait so long for others; 0 sends each at once.
    ``negative_acknowledge_delay``: after so long a negatively acknowledged message is delivered again.
    ``acknowledge_timeout``: so is a message that isn't acknowledged within it; None: never.
    ``max_redeliveries``: a message that was delivered again so often goes to ``dead_letter_topic`` (None is
    ``<topic>-<subscription>-DLQ``) instead; None: never.
    """

    consumer_name: str | None = None
    queue_size: int | None = None
    acknowledge_interval: float = 0.1
    negative_acknowledge_delay: float = 60.0
    acknowledge_timeout: float | None = None
    max_redeliveries: int | None = None
    dead_letter_topic: str | None = None

    def __post_init__(self) -> None:
        whole = {"queue_size": (self.queue_size, 1), "max_redeliveries": (self.max_redeliveries, 0)}
        for name, (value, least) in whole.items():
            if value is not None and not (is_whole(value) and least <= value <= _MAX_NUMBER):
                raise InvalidArgumentError(f"{name} is {value!r}.", f"Use a number from {least} to {_MAX_NUMBER}.")
        for name in ("consumer_name", "dead_letter_topic"):
            text = getattr(self, name)
            if text is not None and not (isinstance(text, str) and is_text(text)):
                raise InvalidArgumentError(f"{name} is {text!r:.80}.", "Use text.")
        for name in ("acknowledge_interval", "negative_acknowledge_delay", "acknowledge_timeout"):
            value = getattr(self, name)
            if value is not None and (not is_number(value) or not 0 <= value < 1e9):
                raise InvalidArgumentError(f"{name} is {value!r}.", "Use seconds, 0 or more.")


def is_text(value: str) -> bool:
    """True if a text can be sent and stored: half of a surrogate pair can't."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
