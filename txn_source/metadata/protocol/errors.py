"""Errors on the wire: a gRPC status code with our ``Error`` as its detail, and back to the same class."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
from google.protobuf import any_pb2
from google.rpc import code_pb2, status_pb2
from grpc_status import rpc_status

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol.convert import error_from_wire
from txn_source.model.errors import InternalError, InvalidArgumentError, TxnLogError, UnavailableError

_MAX_BYTES = {"message": 500, "fact": 2000, "remedy": 1000}
"""An answer's metadata may have 8 KiB: the message is escaped in it (up to 3 times as long), all three are base64."""
_HANDSHAKE = ("handshake", "SSL", "CERTIFICATE", "Hostname Verification")
"""What gRPC says of a connection that TLS has kept from being made."""
_CODES: dict[str, int] = {
    "INVALID_ARGUMENT": code_pb2.INVALID_ARGUMENT,
    "SCHEMA_MISMATCH": code_pb2.INVALID_ARGUMENT,
    "LOG_NOT_FOUND": code_pb2.NOT_FOUND,
    "LOG_VERSION": code_pb2.FAILED_PRECONDITION,
    "TOPIC_NOT_FOUND": code_pb2.NOT_FOUND,
    "TOPIC_EXISTS": code_pb2.ALREADY_EXISTS,
    "NAMESPACE_NOT_FOUND": code_pb2.NOT_FOUND,
    "ONLY_COPY": code_pb2.FAILED_PRECONDITION,
    "OUT_OF_RANGE": code_pb2.OUT_OF_RANGE,
    "TXN_NOT_FOUND": code_pb2.NOT_FOUND,
    "TXN_ENDED": code_pb2.FAILED_PRECONDITION,
    "TXN_TIMED_OUT": code_pb2.FAILED_PRECONDITION,
    "ACKNOWLEDGED_ELSEWHERE": code_pb2.ABORTED,
    "SUBSCRIPTION_NOT_FOUND": code_pb2.NOT_FOUND,
    "SUBSCRIPTION_EXISTS": code_pb2.ALREADY_EXISTS,
    "SUBSCRIPTION_BUSY": code_pb2.FAILED_PRECONDITION,
    "SUBSCRIPTION_ISOLATION_MISMATCH": code_pb2.FAILED_PRECONDITION,
    "STALE_EPOCH": code_pb2.FAILED_PRECONDITION,
    "BATCH_REPEATED": code_pb2.FAILED_PRECONDITION,
    "PRODUCER_FENCED": code_pb2.FAILED_PRECONDITION,
    "SEGMENT_UNREADABLE": code_pb2.DATA_LOSS,
    "STORAGE_WRITE_FAILED": code_pb2.RESOURCE_EXHAUSTED,
    "STALE_SEGMENT": code_pb2.FAILED_PRECONDITION,
    "MESSAGE_UNREADABLE": code_pb2.DATA_LOSS,
    "DATA_LOSS": code_pb2.DATA_LOSS,
    "NO_JAR": code_pb2.FAILED_PRECONDITION,
    "UNAUTHENTICATED": code_pb2.UNAUTHENTICATED,
    "PERMISSION_DENIED": code_pb2.PERMISSION_DENIED,
    "LIMIT_EXCEEDED": code_pb2.RESOURCE_EXHAUSTED,
    "RATE_LIMITED": code_pb2.RESOURCE_EXHAUSTED,
    "FAILED": code_pb2.FAILED_PRECONDITION,
    "UNAVAILABLE": code_pb2.UNAVAILABLE,
    "INTERNAL": code_pb2.INTERNAL,
}


def to_status(error: TxnLogError) -> grpc.Status:
    """Return the gRPC status that carries an error whole; only very long texts are cut."""
    detail = any_pb2.Any()
    detail.Pack(pb.Error(code=error.code, fact=_cut("fact", error.fact), remedy=_cut("remedy", error.remedy)))
    message = _cut("message", str(error))
    code = _CODES.get(error.code, code_pb2.UNKNOWN)
    return rpc_status.to_status(status_pb2.Status(code=code, message=message, details=[detail]))


def _cut(what: str, text: str) -> str:
    data = text.encode(errors="replace")
    return text if len(data) <= _MAX_BYTES[what] else f"{data[: _MAX_BYTES[what]].decode(errors='ignore')} ..."


def from_rpc_error(error: grpc.RpcError, target: str, timeout_s: float) -> TxnLogError:
    """Return the error that the service raised, or what the failure of the call itself means."""
    status = rpc_status.from_call(error) if isinstance(error, grpc.Call) else None
    details: Sequence[any_pb2.Any] = status.details if status is not None else ()
    for detail in details:
        message = pb.Error()
        if detail.Unpack(message):
            return error_from_wire(message)
    code = error.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return UnavailableError(
            f"The metadata service at {target} didn't answer within {timeout_s:g} s.",
            "See whether it runs there (`txnlog serve`) and is reachable, then try again.",
        )
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        if any(word in str(error.details()) for word in _HANDSHAKE):
            return UnavailableError(
                f"The metadata service at {target} and this client don't agree on TLS ({error.details()}).",
                "Check that it speaks TLS, that its certificate is for this address and of an authority in tls_ca, and"
                " whether it wants a certificate of clients.",
            )
        return UnavailableError(
            f"The metadata service at {target} can't be reached ({error.details()}).",
            "See whether it runs there (`txnlog serve`) and the address is right, then try again."
            + (" If it speaks TLS, give tls_ca." if "Socket closed" in str(error.details()) else ""),
        )
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return InvalidArgumentError(
            f"A message to or from the metadata service at {target} is too large ({error.details()}).",
            "Ask for less, or send less, at once.",
        )
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return InternalError(
            f"What answers at {target} is not this release's metadata service.",
            "Check the address, and that client and service are of the same release.",
        )
    return InternalError(f"The metadata service at {target} failed: {error.details()}.", "Look into its log.")
