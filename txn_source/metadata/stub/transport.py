"""What carries a client's calls to the service, and how large they may be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from google.protobuf.message import Message

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.model.errors import InvalidArgumentError, UnavailableError

SERVICE_NAME: str = pb.DESCRIPTOR.services_by_name["MetadataService"].full_name
MAX_MESSAGE_BYTES = 64 << 20
LOG_ID_KEY = "txnlog-log-id"
"""In a call's gRPC metadata: the id of the log that the client has connected to."""


def check_size(method: str, what: str, message: Message, remedy: str) -> None:
    """Raise INVALID_ARGUMENT if a message is larger than one may be on the wire, before it goes there."""
    size = message.ByteSize()
    if size > MAX_MESSAGE_BYTES:
        raise InvalidArgumentError(
            f"The {what} of {method} has {size:,} bytes, and {MAX_MESSAGE_BYTES:,} is the most that is carried.", remedy
        )


def other_log() -> UnavailableError:
    """Return the error of a service that has another log than the one that the client has connected to."""
    return UnavailableError(
        "The service at this address has another log now than the one that was connected to.",
        "See which service runs there; connect anew if that log is meant.",
    )


def went_back(decisions: int, before: int) -> UnavailableError:
    """Return the error of a service whose log is at an earlier moment than the client has seen it."""
    return UnavailableError(
        f"The log has gone back: the service shows {decisions} transactions ended, and had shown {before} before.",
        "Its database was put back to an earlier moment. If it is to stay so: stop all services, run `txnlog"
        " after-restore`, and start services and clients again.",
    )


class Transport(Protocol):
    """Carries one call to the service and its answer back, raising what the service raised."""

    @property
    def timeout_s(self) -> float:
        """How long to wait for an answer."""

    def call(self, method: str, request: Message) -> Any:
        """Return the answer of the method of that name."""

    def converse(self, method: str, requests: Iterator[Any]) -> Iterator[Any]:
        """Hold a conversation of that name: send the requests as they come, and yield the answers as they come.

        It ends when the requests do. Closing the iterator of answers ends it too.
        """

    def close(self) -> None:
        """Give up what this process holds open; a later call opens it again."""
