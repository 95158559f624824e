"""The messages of a consumer that were delivered too often."""

from __future__ import annotations

import logging
from collections.abc import Callable

from txn_source.client.consuming.consumer_state import ConsumerState
from txn_source.client.consuming.messages import Message
from txn_source.model.errors import AcknowledgedElsewhereError, MessageUnreadableError, StaleEpochError

_log = logging.getLogger(__name__)

SendDeadLetter = Callable[[Message, str], None]
"""Sends a message to a dead-letter topic and acknowledges it, in one transaction."""


class DeadLetters:
    """The messages of a consumer that were delivered too often, and don't go to its caller any more."""

    def __init__(self, state: ConsumerState, send: SendDeadLetter | None) -> None:
        """Take what sends them; None: nothing is sent, whatever the options say."""
        self._state = state
        self._limit = state.options.max_redeliveries
        name = f"{state.topic_name.short}-{state.request.name}-DLQ"
        self._topic = state.options.dead_letter_topic or name
        self.send = send

    def take(self, message: Message) -> bool:
        """Move a message to the dead-letter topic if it is due; return False for one that has to be handed out."""
        if self.send is None or self._limit is None or message.redelivery_count <= self._limit:
            return False
        try:
            self.send(message, self._topic)
        except AcknowledgedElsewhereError:
            pass  # by an earlier call that was interrupted behind its commit
        except StaleEpochError:
            return True  # it comes again, after a seek or a lost connection, and goes there then
        except MessageUnreadableError as error:
            _log.warning(
                "message %s can't go to a dead-letter topic and is received again: %s", error.message_id, error
            )
            return False
        self._state.redeliveries.forget_count(message._batch, message._row)
        return True
