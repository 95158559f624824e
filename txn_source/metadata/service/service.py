"""The service: one method for each call of ``txnlog.v1.MetadataService``, each of them one database transaction.

Calls take and return protobuf messages and raise ``TxnLogError``. The embedded log makes them directly, the server puts
gRPC before them. The service keeps no state but its database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import Message

from txn_source._generated.txnlog.v1 import metadata_service_pb2 as pb
from txn_source.metadata.protocol.checks import check
from txn_source.metadata.service.unit_of_work import Clock, Timed, TimedOut, UnitOfWork, system_clock
from txn_source.metadata.store.database import Database, DatabaseUse
from txn_source.model.caller import Ending

if TYPE_CHECKING:
    from txn_source.metadata.delivery.consumer_hub import ConsumerHub
    from txn_source.metadata.store.connection import Connection

Call = Callable[[Any], Message]
"""Takes the request of a call and returns its answer."""
Conversation = Callable[[Iterable[Any], Ending | None], Iterator[Message]]
"""Takes the requests of a conversation as they come, and yields the answers."""
T = TypeVar("T")


CALLS: Mapping[str, str] = {
    "GetLog": "reads",
    "CreateTopic": "topics",
    "UpdateTopic": "topics",
    "ListTopics": "reads",
    "DeleteTopic": "topics",
    "RollLedger": "topics",
    "OpenProducer": "producers",
    "Append": "writes",
    "CommitBatch": "producers",
    "ImportBatch": "imports",
    "GetImport": "imports",
    "ListSegments": "producers",
    "CondemnSegments": "producers",
    "JudgeFiles": "producers",
    "CloseProducer": "producers",
    "BeginTransaction": "transactions",
    "WriteTransaction": "writes",
    "WriteAll": "writes",
    "EndTransaction": "transactions",
    "GetTransaction": "transactions",
    "ListTransactions": "transactions",
    "GetView": "reads",
    "FindCut": "reads",
    "FindPosition": "reads",
    "ListLedgers": "reads",
    "ListLedgersOfRanges": "reads",
    "SplitRange": "reads",
    "CountRange": "reads",
    "ReadTable": "tables",
    "ListEntries": "reads",
    "ListDecisions": "reads",
    "ListCopies": "reads",
    "ListOffloadable": "tiers",
    "BeginOffload": "tiers",
    "CompleteOffload": "tiers",
    "AbandonOffload": "tiers",
    "DeleteCopies": "tiers",
    "TrimTopic": "tiers",
    "ListDoomedFiles": "tiers",
    "ForgetDoomedFiles": "tiers",
    "AddRoot": "roots",
    "RemoveRoot": "roots",
    "ListHotSegments": "roots",
    "ListSegmentEntries": "roots",
    "ChangeSegmentRoots": "roots",
    "ChangePolicies": "policies",
    "GetPolicies": "policies",
    "CreateSubscription": "subscriptions",
    "ListSubscriptions": "subscriptions",
    "DeleteSubscription": "subscriptions",
    "SeekSubscription": "subscriptions",
    "SetSubscriptionIsolationLevel": "subscriptions",
    "CountMessages": "subscriptions",
}
"""Each call's subject, whose class has a method of the call's name."""
CONVERSATIONS: Mapping[str, str] = {"Consume": "subscriptions"}


class MetadataService:
    """All calls of the metadata service over one database.

    ``configuration`` are the broker's policies (``model/policies.py``); what is set for the broker in the database is
    stronger.
    """

    def __init__(
        self,
        database: Database,
        storage_uri: str,
        clock: Clock = system_clock,
        configuration: Mapping[str, Any] | None = None,
    ) -> None:
        self._database = database
        self._storage_uri = storage_uri
        self._work = UnitOfWork(database, clock, configuration)
        self._configuration = self._work.configuration
        self._making = RLock()
        self._hub: ConsumerHub | None = None
        self._subjects: dict[str, Any] = {}
        self._calls: dict[str, Call] = {}

    def load(self) -> None:
        """Load what all calls need; else each does with the first call of its subject."""
        for subject in {*CALLS.values(), *CONVERSATIONS.values()}:
            self._subject(subject)

    @property
    def hub(self) -> ConsumerHub:
        """The consumers that are connected through this service."""
        if self._hub is None:
            from txn_source.metadata.delivery.consumer_hub import ConsumerHub

            with self._making:
                if self._hub is None:
                    self._hub = ConsumerHub(self._database, self._work, self._configuration)
        return self._hub

    def call(self, name: str, request: Message) -> Message:
        """Make a call and return its answer.

        Raises:
            InvalidArgumentError: the request has a field that can't be (``protocol/checks.py``).
            TxnLogError: the call was refused, or has failed.
        """
        check(request)
        return (self._calls.get(name) or self._found(name))(request)

    def converse(self, name: str, requests: Iterable[Message], ending: Ending | None = None) -> Iterator[Message]:
        """Hold a conversation: yield the answers until the requests end, or its ending. It checks each request itself.

        Raises:
            TxnLogError: it was refused, has failed, or came to its ending.
        """
        held: Conversation = getattr(self._subject(CONVERSATIONS[name]), name)
        return held(requests, ending)

    def observe(self, timed: Timed, timed_out: TimedOut) -> None:
        """Have somebody told how long each transaction of the database takes, and of transactions past their timeout
        that this service aborts."""
        self._work.timed, self._work.timed_out = timed, timed_out

    @property
    def database_use(self) -> DatabaseUse:
        """How much of the database's connections is used now."""
        return self._database.use

    def connected(self) -> tuple[int, int]:
        """Return how many consumers are connected through this service, and how many messages they have that nobody
        has acknowledged."""
        sessions = [] if self._hub is None else list(self._hub.connected().values())
        return len(sessions), sum(session.unacknowledged for session in sessions)

    def now_ms(self) -> int:
        """Return the time that deadlines go by, in milliseconds since the epoch."""
        return self._work.now_ms()

    def look(self, action: Callable[[Connection], T]) -> T:
        """Return what a read of one moment finds, of what doesn't depend on deadlines."""
        with self._work.read_history() as connection:
            return action(connection)

    def close(self) -> None:
        """End the conversations with consumers, and close the database's connections."""
        if self._hub is not None:
            self._hub.close()
        self._database.close()

    def close_database(self) -> None:
        """Close the database's connections that nobody uses; the next call opens what it needs."""
        self._database.close()

    @cached_property
    def log_id(self) -> str:
        """Which log it is."""
        return str(self._found("GetLog")(pb.GetLogRequest()).log_id)  # type: ignore[attr-defined]

    @property
    def database_file(self) -> Path | None:
        """The file that the metadata is in; None if it is in a database server."""
        return self._database.file

    @property
    def has_written(self) -> bool:
        """True if this service has changed something."""
        return self._work.has_written

    @property
    def progress(self) -> int:
        """How far the log has come, which only grows; of metadata that has its own backups."""
        from txn_source.metadata.store import copy_changes

        return self.look(copy_changes.progress)

    def begin_snapshot(self) -> None:
        """Let what was copied of the database before be behind a snapshot that is made from now on."""
        from txn_source.metadata.store import copy_changes

        self._work.write(copy_changes.tick)

    def note_snapshot(self, doomed_id: int | None, activity: int, wait_ms: int) -> None:
        """Note how far the log had come at a snapshot, and that it has the files that were doomed up to an id; later
        ones wait for the next one, for so long at most in measured time. None: no snapshots are kept, and none waits.
        """
        from txn_source.metadata.store import copy_changes

        self._work.write(lambda connection: copy_changes.note_snapshot(connection, doomed_id, activity, wait_ms))

    def files_wait(self) -> bool:
        """True if files that are to be deleted wait for the next snapshot."""
        from txn_source.metadata.store import copy_changes

        return self.look(copy_changes.files_wait)

    @property
    def storage_uri(self) -> str:
        """The root of the log."""
        return self._storage_uri

    def maintain(self) -> None:
        """Do now what would otherwise be done when somebody looks: abort transactions past their deadline."""
        with self._work.read():
            pass

    def _found(self, name: str) -> Call:
        call: Call = getattr(self._subject(CALLS[name]), name)
        self._calls[name] = call
        return call

    def _subject(self, subject: str) -> Any:
        with self._making:
            if subject not in self._subjects:
                self._subjects[subject] = self._make(subject)
            return self._subjects[subject]

    def _make(self, subject: str) -> Any:
        # Imported here: an embedded log is opened by each of Spark's processes, most of which only read.
        match subject:
            case "policies":
                from txn_source.metadata.service.policy_calls import PolicyCalls

                return PolicyCalls(self._work, self._configuration)
            case "roots":
                from txn_source.metadata.service.root_calls import RootCalls

                return RootCalls(self._work, self._configuration)
            case "producers":
                from txn_source.metadata.service.producer_calls import ProducerCalls

                return ProducerCalls(self._work)
            case "imports":
                from txn_source.metadata.service.import_calls import ImportCalls

                return ImportCalls(self._work)
            case "tables":
                from txn_source.metadata.service.table_calls import TableCalls

                return TableCalls(self._work)
            case "reads":
                from txn_source.metadata.service.read_calls import ReadCalls

                return ReadCalls(self._work, self._storage_uri, self._configuration)
            case "subscriptions":
                from txn_source.metadata.service.subscription_calls import SubscriptionCalls

                return SubscriptionCalls(self._work, self.hub)
            case "tiers":
                from txn_source.metadata.service.tier_calls import TierCalls

                return TierCalls(self._work, self._configuration)
            case "topics":
                from txn_source.metadata.service.topic_calls import TopicCalls

                return TopicCalls(self._work)
            case "transactions":
                from txn_source.metadata.service.transaction_calls import TransactionCalls

                return TransactionCalls(self._work, self.hub)
            case _:
                from txn_source.metadata.service.write_calls import WriteCalls

                return WriteCalls(self._work, self.hub)
