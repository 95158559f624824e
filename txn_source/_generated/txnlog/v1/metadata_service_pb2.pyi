from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TransactionState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSACTION_STATE_UNSPECIFIED: _ClassVar[TransactionState]
    TRANSACTION_STATE_OPEN: _ClassVar[TransactionState]
    TRANSACTION_STATE_COMMITTED: _ClassVar[TransactionState]
    TRANSACTION_STATE_ABORTED: _ClassVar[TransactionState]

class EndReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    END_REASON_UNSPECIFIED: _ClassVar[EndReason]
    END_REASON_CLIENT: _ClassVar[EndReason]
    END_REASON_TIMEOUT: _ClassVar[EndReason]
    END_REASON_FORCED: _ClassVar[EndReason]
    END_REASON_FENCED: _ClassVar[EndReason]

class IsolationLevel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ISOLATION_LEVEL_UNSPECIFIED: _ClassVar[IsolationLevel]
    ISOLATION_LEVEL_READ_COMMITTED: _ClassVar[IsolationLevel]
    ISOLATION_LEVEL_READ_UNCOMMITTED: _ClassVar[IsolationLevel]

class SubscriptionType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SUBSCRIPTION_TYPE_UNSPECIFIED: _ClassVar[SubscriptionType]
    SUBSCRIPTION_TYPE_EXCLUSIVE: _ClassVar[SubscriptionType]
    SUBSCRIPTION_TYPE_FAILOVER: _ClassVar[SubscriptionType]
    SUBSCRIPTION_TYPE_SHARED: _ClassVar[SubscriptionType]

class ReadPriority(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    READ_PRIORITY_UNSPECIFIED: _ClassVar[ReadPriority]
    READ_PRIORITY_TIERED_FIRST: _ClassVar[ReadPriority]
    READ_PRIORITY_BOOKKEEPER_FIRST: _ClassVar[ReadPriority]

class PolicySource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    POLICY_SOURCE_UNSPECIFIED: _ClassVar[PolicySource]
    POLICY_SOURCE_TOPIC: _ClassVar[PolicySource]
    POLICY_SOURCE_NAMESPACE: _ClassVar[PolicySource]
    POLICY_SOURCE_BROKER: _ClassVar[PolicySource]
    POLICY_SOURCE_DEFAULT: _ClassVar[PolicySource]

class Tier(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TIER_UNSPECIFIED: _ClassVar[Tier]
    TIER_BOOKKEEPER: _ClassVar[Tier]
    TIER_TIERED: _ClassVar[Tier]

class TopicEnd(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOPIC_END_UNSPECIFIED: _ClassVar[TopicEnd]
    TOPIC_END_EARLIEST: _ClassVar[TopicEnd]
    TOPIC_END_LATEST: _ClassVar[TopicEnd]

class FileVerdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FILE_VERDICT_UNSPECIFIED: _ClassVar[FileVerdict]
    FILE_VERDICT_KNOWN: _ClassVar[FileVerdict]
    FILE_VERDICT_WRITING: _ClassVar[FileVerdict]
    FILE_VERDICT_RELEASED: _ClassVar[FileVerdict]
    FILE_VERDICT_LEFTOVER: _ClassVar[FileVerdict]
    FILE_VERDICT_UNKNOWN: _ClassVar[FileVerdict]
    FILE_VERDICT_AHEAD: _ClassVar[FileVerdict]

class FileDoom(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FILE_DOOM_UNSPECIFIED: _ClassVar[FileDoom]
    FILE_DOOM_LEFTOVER: _ClassVar[FileDoom]
    FILE_DOOM_UNKNOWN: _ClassVar[FileDoom]
TRANSACTION_STATE_UNSPECIFIED: TransactionState
TRANSACTION_STATE_OPEN: TransactionState
TRANSACTION_STATE_COMMITTED: TransactionState
TRANSACTION_STATE_ABORTED: TransactionState
END_REASON_UNSPECIFIED: EndReason
END_REASON_CLIENT: EndReason
END_REASON_TIMEOUT: EndReason
END_REASON_FORCED: EndReason
END_REASON_FENCED: EndReason
ISOLATION_LEVEL_UNSPECIFIED: IsolationLevel
ISOLATION_LEVEL_READ_COMMITTED: IsolationLevel
ISOLATION_LEVEL_READ_UNCOMMITTED: IsolationLevel
SUBSCRIPTION_TYPE_UNSPECIFIED: SubscriptionType
SUBSCRIPTION_TYPE_EXCLUSIVE: SubscriptionType
SUBSCRIPTION_TYPE_FAILOVER: SubscriptionType
SUBSCRIPTION_TYPE_SHARED: SubscriptionType
READ_PRIORITY_UNSPECIFIED: ReadPriority
READ_PRIORITY_TIERED_FIRST: ReadPriority
READ_PRIORITY_BOOKKEEPER_FIRST: ReadPriority
POLICY_SOURCE_UNSPECIFIED: PolicySource
POLICY_SOURCE_TOPIC: PolicySource
POLICY_SOURCE_NAMESPACE: PolicySource
POLICY_SOURCE_BROKER: PolicySource
POLICY_SOURCE_DEFAULT: PolicySource
TIER_UNSPECIFIED: Tier
TIER_BOOKKEEPER: Tier
TIER_TIERED: Tier
TOPIC_END_UNSPECIFIED: TopicEnd
TOPIC_END_EARLIEST: TopicEnd
TOPIC_END_LATEST: TopicEnd
FILE_VERDICT_UNSPECIFIED: FileVerdict
FILE_VERDICT_KNOWN: FileVerdict
FILE_VERDICT_WRITING: FileVerdict
FILE_VERDICT_RELEASED: FileVerdict
FILE_VERDICT_LEFTOVER: FileVerdict
FILE_VERDICT_UNKNOWN: FileVerdict
FILE_VERDICT_AHEAD: FileVerdict
FILE_DOOM_UNSPECIFIED: FileDoom
FILE_DOOM_LEFTOVER: FileDoom
FILE_DOOM_UNKNOWN: FileDoom

class Error(_message.Message):
    __slots__ = ("code", "fact", "remedy")
    CODE_FIELD_NUMBER: _ClassVar[int]
    FACT_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    code: str
    fact: str
    remedy: str
    def __init__(self, code: _Optional[str] = ..., fact: _Optional[str] = ..., remedy: _Optional[str] = ...) -> None: ...

class GetLogRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetLogResponse(_message.Message):
    __slots__ = ("log_id", "format_version", "storage_uri", "roots")
    LOG_ID_FIELD_NUMBER: _ClassVar[int]
    FORMAT_VERSION_FIELD_NUMBER: _ClassVar[int]
    STORAGE_URI_FIELD_NUMBER: _ClassVar[int]
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    log_id: str
    format_version: int
    storage_uri: str
    roots: _containers.RepeatedCompositeFieldContainer[HotRoot]
    def __init__(self, log_id: _Optional[str] = ..., format_version: _Optional[int] = ..., storage_uri: _Optional[str] = ..., roots: _Optional[_Iterable[_Union[HotRoot, _Mapping]]] = ...) -> None: ...

class HotRoot(_message.Message):
    __slots__ = ("root_id", "name", "uri")
    ROOT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    root_id: int
    name: str
    uri: str
    def __init__(self, root_id: _Optional[int] = ..., name: _Optional[str] = ..., uri: _Optional[str] = ...) -> None: ...

class AddRootRequest(_message.Message):
    __slots__ = ("request_id", "name", "uri")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    uri: str
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ..., uri: _Optional[str] = ...) -> None: ...

class AddRootResponse(_message.Message):
    __slots__ = ("root",)
    ROOT_FIELD_NUMBER: _ClassVar[int]
    root: HotRoot
    def __init__(self, root: _Optional[_Union[HotRoot, _Mapping]] = ...) -> None: ...

class RemoveRootRequest(_message.Message):
    __slots__ = ("request_id", "name")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class RemoveRootResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListHotSegmentsRequest(_message.Message):
    __slots__ = ("topic", "after_segment_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    after_segment_id: int
    def __init__(self, topic: _Optional[str] = ..., after_segment_id: _Optional[int] = ...) -> None: ...

class HotSegment(_message.Message):
    __slots__ = ("segment_id", "path", "roots", "end", "entries")
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    segment_id: int
    path: str
    roots: int
    end: int
    entries: int
    def __init__(self, segment_id: _Optional[int] = ..., path: _Optional[str] = ..., roots: _Optional[int] = ..., end: _Optional[int] = ..., entries: _Optional[int] = ...) -> None: ...

class ListHotSegmentsResponse(_message.Message):
    __slots__ = ("segments", "has_more", "wanted")
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedCompositeFieldContainer[HotSegment]
    has_more: bool
    wanted: int
    def __init__(self, segments: _Optional[_Iterable[_Union[HotSegment, _Mapping]]] = ..., has_more: bool = ..., wanted: _Optional[int] = ...) -> None: ...

class ListSegmentEntriesRequest(_message.Message):
    __slots__ = ("topic", "path")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    path: str
    def __init__(self, topic: _Optional[str] = ..., path: _Optional[str] = ...) -> None: ...

class ListSegmentEntriesResponse(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: bytes
    def __init__(self, entries: _Optional[bytes] = ...) -> None: ...

class ChangeSegmentRootsRequest(_message.Message):
    __slots__ = ("topic", "changes")
    class Change(_message.Message):
        __slots__ = ("path", "added", "removed", "end")
        PATH_FIELD_NUMBER: _ClassVar[int]
        ADDED_FIELD_NUMBER: _ClassVar[int]
        REMOVED_FIELD_NUMBER: _ClassVar[int]
        END_FIELD_NUMBER: _ClassVar[int]
        path: str
        added: int
        removed: int
        end: int
        def __init__(self, path: _Optional[str] = ..., added: _Optional[int] = ..., removed: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    changes: _containers.RepeatedCompositeFieldContainer[ChangeSegmentRootsRequest.Change]
    def __init__(self, topic: _Optional[str] = ..., changes: _Optional[_Iterable[_Union[ChangeSegmentRootsRequest.Change, _Mapping]]] = ...) -> None: ...

class ChangeSegmentRootsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TopicPolicies(_message.Message):
    __slots__ = ("ledger_max_entries", "ledger_max_bytes", "ledger_max_age_ms")
    LEDGER_MAX_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    LEDGER_MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEDGER_MAX_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    ledger_max_entries: int
    ledger_max_bytes: int
    ledger_max_age_ms: int
    def __init__(self, ledger_max_entries: _Optional[int] = ..., ledger_max_bytes: _Optional[int] = ..., ledger_max_age_ms: _Optional[int] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("topic_id", "name", "schema", "policies", "created_at_ms")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    name: str
    schema: bytes
    policies: TopicPolicies
    created_at_ms: int
    def __init__(self, topic_id: _Optional[int] = ..., name: _Optional[str] = ..., schema: _Optional[bytes] = ..., policies: _Optional[_Union[TopicPolicies, _Mapping]] = ..., created_at_ms: _Optional[int] = ...) -> None: ...

class Partition(_message.Message):
    __slots__ = ("partition_id", "index", "log_start", "last_stable", "high_watermark", "log_end", "messages", "bytes", "trimmed_end")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    LAST_STABLE_FIELD_NUMBER: _ClassVar[int]
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LOG_END_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_END_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    index: int
    log_start: int
    last_stable: int
    high_watermark: int
    log_end: int
    messages: int
    bytes: int
    trimmed_end: int
    def __init__(self, partition_id: _Optional[int] = ..., index: _Optional[int] = ..., log_start: _Optional[int] = ..., last_stable: _Optional[int] = ..., high_watermark: _Optional[int] = ..., log_end: _Optional[int] = ..., messages: _Optional[int] = ..., bytes: _Optional[int] = ..., trimmed_end: _Optional[int] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("request_id", "name", "partitions", "schema", "policies", "layered_policies")
    class LayeredPoliciesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    LAYERED_POLICIES_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    partitions: int
    schema: bytes
    policies: TopicPolicies
    layered_policies: _containers.ScalarMap[str, str]
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ..., partitions: _Optional[int] = ..., schema: _Optional[bytes] = ..., policies: _Optional[_Union[TopicPolicies, _Mapping]] = ..., layered_policies: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CreateTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class UpdateTopicRequest(_message.Message):
    __slots__ = ("request_id", "name", "partitions")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    partitions: int
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ..., partitions: _Optional[int] = ...) -> None: ...

class UpdateTopicResponse(_message.Message):
    __slots__ = ("added",)
    ADDED_FIELD_NUMBER: _ClassVar[int]
    added: int
    def __init__(self, added: _Optional[int] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    def __init__(self, namespace: _Optional[str] = ...) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("request_id", "name")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ("topic_id",)
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    def __init__(self, topic_id: _Optional[int] = ...) -> None: ...

class RollLedgerRequest(_message.Message):
    __slots__ = ("request_id", "name", "partition")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    partition: int
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class RollLedgerResponse(_message.Message):
    __slots__ = ("closed_ledger_ids",)
    CLOSED_LEDGER_IDS_FIELD_NUMBER: _ClassVar[int]
    closed_ledger_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, closed_ledger_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class OpenProducerRequest(_message.Message):
    __slots__ = ("request_id", "topic", "transactional_id", "producer_name")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    topic: str
    transactional_id: str
    producer_name: str
    def __init__(self, request_id: _Optional[str] = ..., topic: _Optional[str] = ..., transactional_id: _Optional[str] = ..., producer_name: _Optional[str] = ...) -> None: ...

class OpenProducerResponse(_message.Message):
    __slots__ = ("producer_id", "epoch", "producer_name", "topic", "partitions")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    epoch: int
    producer_name: str
    topic: Topic
    partitions: _containers.RepeatedCompositeFieldContainer[Partition]
    def __init__(self, producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., producer_name: _Optional[str] = ..., topic: _Optional[_Union[Topic, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[Partition, _Mapping]]] = ...) -> None: ...

class NewEntry(_message.Message):
    __slots__ = ("partition_id", "base_sequence", "messages", "segment", "offset", "length", "crc32c", "roots")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    BASE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    ROOTS_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    base_sequence: int
    messages: int
    segment: str
    offset: int
    length: int
    crc32c: int
    roots: int
    def __init__(self, partition_id: _Optional[int] = ..., base_sequence: _Optional[int] = ..., messages: _Optional[int] = ..., segment: _Optional[str] = ..., offset: _Optional[int] = ..., length: _Optional[int] = ..., crc32c: _Optional[int] = ..., roots: _Optional[int] = ...) -> None: ...

class AppendRequest(_message.Message):
    __slots__ = ("producer_id", "epoch", "txn", "entries")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TXN_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    epoch: int
    txn: TxnId
    entries: _containers.RepeatedCompositeFieldContainer[NewEntry]
    def __init__(self, producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., txn: _Optional[_Union[TxnId, _Mapping]] = ..., entries: _Optional[_Iterable[_Union[NewEntry, _Mapping]]] = ...) -> None: ...

class AppendResponse(_message.Message):
    __slots__ = ("positions", "partitions", "needs_copies", "publish_time_us")
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    NEEDS_COPIES_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_TIME_US_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.RepeatedScalarFieldContainer[int]
    partitions: int
    needs_copies: bool
    publish_time_us: int
    def __init__(self, positions: _Optional[_Iterable[int]] = ..., partitions: _Optional[int] = ..., needs_copies: bool = ..., publish_time_us: _Optional[int] = ...) -> None: ...

class CommitBatchRequest(_message.Message):
    __slots__ = ("request_id", "query_id", "batch_id", "producer_name", "transactional_id", "topics", "run_id", "app_id", "version")
    class Topic(_message.Message):
        __slots__ = ("name", "topic_id", "entries", "producer_id", "epoch", "content")
        NAME_FIELD_NUMBER: _ClassVar[int]
        TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
        ENTRIES_FIELD_NUMBER: _ClassVar[int]
        PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
        EPOCH_FIELD_NUMBER: _ClassVar[int]
        CONTENT_FIELD_NUMBER: _ClassVar[int]
        name: str
        topic_id: int
        entries: _containers.RepeatedCompositeFieldContainer[NewEntry]
        producer_id: int
        epoch: int
        content: int
        def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[NewEntry, _Mapping]]] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., content: _Optional[int] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    BATCH_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    query_id: str
    batch_id: int
    producer_name: str
    transactional_id: str
    topics: _containers.RepeatedCompositeFieldContainer[CommitBatchRequest.Topic]
    run_id: str
    app_id: str
    version: int
    def __init__(self, request_id: _Optional[str] = ..., query_id: _Optional[str] = ..., batch_id: _Optional[int] = ..., producer_name: _Optional[str] = ..., transactional_id: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[CommitBatchRequest.Topic, _Mapping]]] = ..., run_id: _Optional[str] = ..., app_id: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class CommitBatchResponse(_message.Message):
    __slots__ = ("txn", "repeated_batch", "warnings", "placed")
    class Placed(_message.Message):
        __slots__ = ("topic_id", "producer_id", "epoch", "first_sequence", "positions", "publish_time_us")
        TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
        PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
        EPOCH_FIELD_NUMBER: _ClassVar[int]
        FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
        POSITIONS_FIELD_NUMBER: _ClassVar[int]
        PUBLISH_TIME_US_FIELD_NUMBER: _ClassVar[int]
        topic_id: int
        producer_id: int
        epoch: int
        first_sequence: int
        positions: _containers.RepeatedScalarFieldContainer[int]
        publish_time_us: int
        def __init__(self, topic_id: _Optional[int] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., first_sequence: _Optional[int] = ..., positions: _Optional[_Iterable[int]] = ..., publish_time_us: _Optional[int] = ...) -> None: ...
    TXN_FIELD_NUMBER: _ClassVar[int]
    REPEATED_BATCH_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    PLACED_FIELD_NUMBER: _ClassVar[int]
    txn: TxnId
    repeated_batch: bool
    warnings: _containers.RepeatedScalarFieldContainer[str]
    placed: _containers.RepeatedCompositeFieldContainer[CommitBatchResponse.Placed]
    def __init__(self, txn: _Optional[_Union[TxnId, _Mapping]] = ..., repeated_batch: bool = ..., warnings: _Optional[_Iterable[str]] = ..., placed: _Optional[_Iterable[_Union[CommitBatchResponse.Placed, _Mapping]]] = ...) -> None: ...

class ImportBatchRequest(_message.Message):
    __slots__ = ("request_id", "topics", "begun", "writes", "ends", "kept")
    class Topic(_message.Message):
        __slots__ = ("name", "topic_id", "producer_id", "epoch", "expected", "progress")
        NAME_FIELD_NUMBER: _ClassVar[int]
        TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
        PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
        EPOCH_FIELD_NUMBER: _ClassVar[int]
        EXPECTED_FIELD_NUMBER: _ClassVar[int]
        PROGRESS_FIELD_NUMBER: _ClassVar[int]
        name: str
        topic_id: int
        producer_id: int
        epoch: int
        expected: str
        progress: str
        def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[int] = ..., producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., expected: _Optional[str] = ..., progress: _Optional[str] = ...) -> None: ...
    class Transaction(_message.Message):
        __slots__ = ("begun", "id")
        BEGUN_FIELD_NUMBER: _ClassVar[int]
        ID_FIELD_NUMBER: _ClassVar[int]
        begun: int
        id: TxnId
        def __init__(self, begun: _Optional[int] = ..., id: _Optional[_Union[TxnId, _Mapping]] = ...) -> None: ...
    class Write(_message.Message):
        __slots__ = ("topic", "txn", "entries")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        TXN_FIELD_NUMBER: _ClassVar[int]
        ENTRIES_FIELD_NUMBER: _ClassVar[int]
        topic: int
        txn: ImportBatchRequest.Transaction
        entries: _containers.RepeatedCompositeFieldContainer[NewEntry]
        def __init__(self, topic: _Optional[int] = ..., txn: _Optional[_Union[ImportBatchRequest.Transaction, _Mapping]] = ..., entries: _Optional[_Iterable[_Union[NewEntry, _Mapping]]] = ...) -> None: ...
    class End(_message.Message):
        __slots__ = ("txn", "commit")
        TXN_FIELD_NUMBER: _ClassVar[int]
        COMMIT_FIELD_NUMBER: _ClassVar[int]
        txn: ImportBatchRequest.Transaction
        commit: bool
        def __init__(self, txn: _Optional[_Union[ImportBatchRequest.Transaction, _Mapping]] = ..., commit: bool = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    WRITES_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    topics: _containers.RepeatedCompositeFieldContainer[ImportBatchRequest.Topic]
    begun: int
    writes: _containers.RepeatedCompositeFieldContainer[ImportBatchRequest.Write]
    ends: _containers.RepeatedCompositeFieldContainer[ImportBatchRequest.End]
    kept: _containers.RepeatedCompositeFieldContainer[TxnId]
    def __init__(self, request_id: _Optional[str] = ..., topics: _Optional[_Iterable[_Union[ImportBatchRequest.Topic, _Mapping]]] = ..., begun: _Optional[int] = ..., writes: _Optional[_Iterable[_Union[ImportBatchRequest.Write, _Mapping]]] = ..., ends: _Optional[_Iterable[_Union[ImportBatchRequest.End, _Mapping]]] = ..., kept: _Optional[_Iterable[_Union[TxnId, _Mapping]]] = ...) -> None: ...

class ImportBatchResponse(_message.Message):
    __slots__ = ("tails", "positions", "publish_times_us", "begun")
    class Tail(_message.Message):
        __slots__ = ("partition_id", "ledger_id")
        PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
        LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
        partition_id: int
        ledger_id: int
        def __init__(self, partition_id: _Optional[int] = ..., ledger_id: _Optional[int] = ...) -> None: ...
    TAILS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_TIMES_US_FIELD_NUMBER: _ClassVar[int]
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    tails: _containers.RepeatedCompositeFieldContainer[ImportBatchResponse.Tail]
    positions: _containers.RepeatedScalarFieldContainer[int]
    publish_times_us: _containers.RepeatedScalarFieldContainer[int]
    begun: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, tails: _Optional[_Iterable[_Union[ImportBatchResponse.Tail, _Mapping]]] = ..., positions: _Optional[_Iterable[int]] = ..., publish_times_us: _Optional[_Iterable[int]] = ..., begun: _Optional[_Iterable[int]] = ...) -> None: ...

class GetImportRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class GetImportResponse(_message.Message):
    __slots__ = ("progress",)
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    progress: str
    def __init__(self, progress: _Optional[str] = ...) -> None: ...

class TxnId(_message.Message):
    __slots__ = ("most_sig_bits", "least_sig_bits")
    MOST_SIG_BITS_FIELD_NUMBER: _ClassVar[int]
    LEAST_SIG_BITS_FIELD_NUMBER: _ClassVar[int]
    most_sig_bits: int
    least_sig_bits: int
    def __init__(self, most_sig_bits: _Optional[int] = ..., least_sig_bits: _Optional[int] = ...) -> None: ...

class TransactionPartition(_message.Message):
    __slots__ = ("topic", "partition", "first_position", "marker_position", "messages", "bytes", "held_back_messages", "held_back_bytes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FIRST_POSITION_FIELD_NUMBER: _ClassVar[int]
    MARKER_POSITION_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    HELD_BACK_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    HELD_BACK_BYTES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    first_position: int
    marker_position: int
    messages: int
    bytes: int
    held_back_messages: int
    held_back_bytes: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., first_position: _Optional[int] = ..., marker_position: _Optional[int] = ..., messages: _Optional[int] = ..., bytes: _Optional[int] = ..., held_back_messages: _Optional[int] = ..., held_back_bytes: _Optional[int] = ...) -> None: ...

class Transaction(_message.Message):
    __slots__ = ("id", "state", "created_at_ms", "timeout_ms", "ended_at_ms", "end_reason", "producers", "partitions", "now_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    END_REASON_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    id: TxnId
    state: TransactionState
    created_at_ms: int
    timeout_ms: int
    ended_at_ms: int
    end_reason: EndReason
    producers: _containers.RepeatedScalarFieldContainer[str]
    partitions: _containers.RepeatedCompositeFieldContainer[TransactionPartition]
    now_ms: int
    def __init__(self, id: _Optional[_Union[TxnId, _Mapping]] = ..., state: _Optional[_Union[TransactionState, str]] = ..., created_at_ms: _Optional[int] = ..., timeout_ms: _Optional[int] = ..., ended_at_ms: _Optional[int] = ..., end_reason: _Optional[_Union[EndReason, str]] = ..., producers: _Optional[_Iterable[str]] = ..., partitions: _Optional[_Iterable[_Union[TransactionPartition, _Mapping]]] = ..., now_ms: _Optional[int] = ...) -> None: ...

class BeginTransactionRequest(_message.Message):
    __slots__ = ("request_id", "timeout_ms", "age_ms")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    timeout_ms: int
    age_ms: int
    def __init__(self, request_id: _Optional[str] = ..., timeout_ms: _Optional[int] = ..., age_ms: _Optional[int] = ...) -> None: ...

class BeginTransactionResponse(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: TxnId
    def __init__(self, id: _Optional[_Union[TxnId, _Mapping]] = ...) -> None: ...

class WriteTransactionRequest(_message.Message):
    __slots__ = ("timeout_ms", "appends", "acknowledgements")
    class Append(_message.Message):
        __slots__ = ("producer_id", "epoch", "entries")
        PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
        EPOCH_FIELD_NUMBER: _ClassVar[int]
        ENTRIES_FIELD_NUMBER: _ClassVar[int]
        producer_id: int
        epoch: int
        entries: _containers.RepeatedCompositeFieldContainer[NewEntry]
        def __init__(self, producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[NewEntry, _Mapping]]] = ...) -> None: ...
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    APPENDS_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGEMENTS_FIELD_NUMBER: _ClassVar[int]
    timeout_ms: int
    appends: _containers.RepeatedCompositeFieldContainer[WriteTransactionRequest.Append]
    acknowledgements: _containers.RepeatedCompositeFieldContainer[SubscriptionAcknowledgements]
    def __init__(self, timeout_ms: _Optional[int] = ..., appends: _Optional[_Iterable[_Union[WriteTransactionRequest.Append, _Mapping]]] = ..., acknowledgements: _Optional[_Iterable[_Union[SubscriptionAcknowledgements, _Mapping]]] = ...) -> None: ...

class WriteTransactionResponse(_message.Message):
    __slots__ = ("id", "appended")
    class Appended(_message.Message):
        __slots__ = ("positions", "partitions", "needs_copies", "publish_time_us")
        POSITIONS_FIELD_NUMBER: _ClassVar[int]
        PARTITIONS_FIELD_NUMBER: _ClassVar[int]
        NEEDS_COPIES_FIELD_NUMBER: _ClassVar[int]
        PUBLISH_TIME_US_FIELD_NUMBER: _ClassVar[int]
        positions: _containers.RepeatedScalarFieldContainer[int]
        partitions: int
        needs_copies: bool
        publish_time_us: int
        def __init__(self, positions: _Optional[_Iterable[int]] = ..., partitions: _Optional[int] = ..., needs_copies: bool = ..., publish_time_us: _Optional[int] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    APPENDED_FIELD_NUMBER: _ClassVar[int]
    id: TxnId
    appended: _containers.RepeatedCompositeFieldContainer[WriteTransactionResponse.Appended]
    def __init__(self, id: _Optional[_Union[TxnId, _Mapping]] = ..., appended: _Optional[_Iterable[_Union[WriteTransactionResponse.Appended, _Mapping]]] = ...) -> None: ...

class WriteAllRequest(_message.Message):
    __slots__ = ("writes",)
    class Write(_message.Message):
        __slots__ = ("append", "transaction")
        APPEND_FIELD_NUMBER: _ClassVar[int]
        TRANSACTION_FIELD_NUMBER: _ClassVar[int]
        append: AppendRequest
        transaction: WriteTransactionRequest
        def __init__(self, append: _Optional[_Union[AppendRequest, _Mapping]] = ..., transaction: _Optional[_Union[WriteTransactionRequest, _Mapping]] = ...) -> None: ...
    WRITES_FIELD_NUMBER: _ClassVar[int]
    writes: _containers.RepeatedCompositeFieldContainer[WriteAllRequest.Write]
    def __init__(self, writes: _Optional[_Iterable[_Union[WriteAllRequest.Write, _Mapping]]] = ...) -> None: ...

class WriteAllResponse(_message.Message):
    __slots__ = ("writes",)
    class Written(_message.Message):
        __slots__ = ("append", "transaction", "error")
        APPEND_FIELD_NUMBER: _ClassVar[int]
        TRANSACTION_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        append: AppendResponse
        transaction: WriteTransactionResponse
        error: Error
        def __init__(self, append: _Optional[_Union[AppendResponse, _Mapping]] = ..., transaction: _Optional[_Union[WriteTransactionResponse, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...
    WRITES_FIELD_NUMBER: _ClassVar[int]
    writes: _containers.RepeatedCompositeFieldContainer[WriteAllResponse.Written]
    def __init__(self, writes: _Optional[_Iterable[_Union[WriteAllResponse.Written, _Mapping]]] = ...) -> None: ...

class EndTransactionRequest(_message.Message):
    __slots__ = ("id", "commit", "forced", "acknowledgements")
    ID_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    FORCED_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGEMENTS_FIELD_NUMBER: _ClassVar[int]
    id: TxnId
    commit: bool
    forced: bool
    acknowledgements: _containers.RepeatedCompositeFieldContainer[SubscriptionAcknowledgements]
    def __init__(self, id: _Optional[_Union[TxnId, _Mapping]] = ..., commit: bool = ..., forced: bool = ..., acknowledgements: _Optional[_Iterable[_Union[SubscriptionAcknowledgements, _Mapping]]] = ...) -> None: ...

class EndTransactionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetTransactionRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: TxnId
    def __init__(self, id: _Optional[_Union[TxnId, _Mapping]] = ...) -> None: ...

class GetTransactionResponse(_message.Message):
    __slots__ = ("transaction",)
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    transaction: Transaction
    def __init__(self, transaction: _Optional[_Union[Transaction, _Mapping]] = ...) -> None: ...

class ListTransactionsRequest(_message.Message):
    __slots__ = ("state", "topic", "limit", "oldest_first", "after")
    STATE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    OLDEST_FIRST_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    state: TransactionState
    topic: str
    limit: int
    oldest_first: bool
    after: TxnId
    def __init__(self, state: _Optional[_Union[TransactionState, str]] = ..., topic: _Optional[str] = ..., limit: _Optional[int] = ..., oldest_first: bool = ..., after: _Optional[_Union[TxnId, _Mapping]] = ...) -> None: ...

class ListTransactionsResponse(_message.Message):
    __slots__ = ("transactions", "more")
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedCompositeFieldContainer[Transaction]
    more: int
    def __init__(self, transactions: _Optional[_Iterable[_Union[Transaction, _Mapping]]] = ..., more: _Optional[int] = ...) -> None: ...

class GetViewRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class TopicView(_message.Message):
    __slots__ = ("topic", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    partitions: _containers.RepeatedCompositeFieldContainer[Partition]
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[Partition, _Mapping]]] = ...) -> None: ...

class GetViewResponse(_message.Message):
    __slots__ = ("topics", "decisions", "now_ms")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicView]
    decisions: int
    now_ms: int
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicView, _Mapping]]] = ..., decisions: _Optional[int] = ..., now_ms: _Optional[int] = ...) -> None: ...

class FindCutRequest(_message.Message):
    __slots__ = ("bounds", "starts", "upward")
    class BoundsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    class StartsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    UPWARD_FIELD_NUMBER: _ClassVar[int]
    bounds: _containers.ScalarMap[int, int]
    starts: _containers.ScalarMap[int, int]
    upward: bool
    def __init__(self, bounds: _Optional[_Mapping[int, int]] = ..., starts: _Optional[_Mapping[int, int]] = ..., upward: bool = ...) -> None: ...

class FindCutResponse(_message.Message):
    __slots__ = ("bounds",)
    class BoundsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    bounds: _containers.ScalarMap[int, int]
    def __init__(self, bounds: _Optional[_Mapping[int, int]] = ...) -> None: ...

class FindPositionRequest(_message.Message):
    __slots__ = ("partition_ids", "publish_time_us")
    PARTITION_IDS_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_TIME_US_FIELD_NUMBER: _ClassVar[int]
    partition_ids: _containers.RepeatedScalarFieldContainer[int]
    publish_time_us: int
    def __init__(self, partition_ids: _Optional[_Iterable[int]] = ..., publish_time_us: _Optional[int] = ...) -> None: ...

class FindPositionResponse(_message.Message):
    __slots__ = ("found", "decisions")
    class Found(_message.Message):
        __slots__ = ("partition_id", "position", "ledger_only")
        PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
        POSITION_FIELD_NUMBER: _ClassVar[int]
        LEDGER_ONLY_FIELD_NUMBER: _ClassVar[int]
        partition_id: int
        position: int
        ledger_only: bool
        def __init__(self, partition_id: _Optional[int] = ..., position: _Optional[int] = ..., ledger_only: bool = ...) -> None: ...
    FOUND_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    found: _containers.RepeatedCompositeFieldContainer[FindPositionResponse.Found]
    decisions: int
    def __init__(self, found: _Optional[_Iterable[_Union[FindPositionResponse.Found, _Mapping]]] = ..., decisions: _Optional[int] = ...) -> None: ...

class ListLedgersRequest(_message.Message):
    __slots__ = ("partition_id", "start", "end", "times")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    start: int
    end: int
    times: bool
    def __init__(self, partition_id: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., times: bool = ...) -> None: ...

class ListLedgersResponse(_message.Message):
    __slots__ = ("ledgers", "has_more", "next_start")
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_START_FIELD_NUMBER: _ClassVar[int]
    ledgers: bytes
    has_more: bool
    next_start: int
    def __init__(self, ledgers: _Optional[bytes] = ..., has_more: bool = ..., next_start: _Optional[int] = ...) -> None: ...

class PartitionRange(_message.Message):
    __slots__ = ("partition_id", "start", "end")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    start: int
    end: int
    def __init__(self, partition_id: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class ListLedgersOfRangesRequest(_message.Message):
    __slots__ = ("ranges", "times")
    RANGES_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    ranges: _containers.RepeatedCompositeFieldContainer[PartitionRange]
    times: bool
    def __init__(self, ranges: _Optional[_Iterable[_Union[PartitionRange, _Mapping]]] = ..., times: bool = ...) -> None: ...

class ListLedgersOfRangesResponse(_message.Message):
    __slots__ = ("ledgers", "counts")
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    ledgers: bytes
    counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ledgers: _Optional[bytes] = ..., counts: _Optional[_Iterable[int]] = ...) -> None: ...

class SplitRangeRequest(_message.Message):
    __slots__ = ("partition_id", "start", "end", "target_bytes")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TARGET_BYTES_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    start: int
    end: int
    target_bytes: int
    def __init__(self, partition_id: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., target_bytes: _Optional[int] = ...) -> None: ...

class SplitRangeResponse(_message.Message):
    __slots__ = ("cuts", "piece_bytes", "first_times_us", "last_times_us")
    CUTS_FIELD_NUMBER: _ClassVar[int]
    PIECE_BYTES_FIELD_NUMBER: _ClassVar[int]
    FIRST_TIMES_US_FIELD_NUMBER: _ClassVar[int]
    LAST_TIMES_US_FIELD_NUMBER: _ClassVar[int]
    cuts: _containers.RepeatedScalarFieldContainer[int]
    piece_bytes: _containers.RepeatedScalarFieldContainer[int]
    first_times_us: _containers.RepeatedScalarFieldContainer[int]
    last_times_us: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, cuts: _Optional[_Iterable[int]] = ..., piece_bytes: _Optional[_Iterable[int]] = ..., first_times_us: _Optional[_Iterable[int]] = ..., last_times_us: _Optional[_Iterable[int]] = ...) -> None: ...

class CountRangeRequest(_message.Message):
    __slots__ = ("partition_id", "start", "end", "isolation_level")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_LEVEL_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    start: int
    end: int
    isolation_level: IsolationLevel
    def __init__(self, partition_id: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., isolation_level: _Optional[_Union[IsolationLevel, str]] = ...) -> None: ...

class CountRangeResponse(_message.Message):
    __slots__ = ("messages", "ledger_ids", "lost")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    LEDGER_IDS_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    messages: int
    ledger_ids: _containers.RepeatedScalarFieldContainer[int]
    lost: bool
    def __init__(self, messages: _Optional[int] = ..., ledger_ids: _Optional[_Iterable[int]] = ..., lost: bool = ...) -> None: ...

class ReadTableRequest(_message.Message):
    __slots__ = ("table", "topic", "next", "decisions")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    table: str
    topic: str
    next: int
    decisions: int
    def __init__(self, table: _Optional[str] = ..., topic: _Optional[str] = ..., next: _Optional[int] = ..., decisions: _Optional[int] = ...) -> None: ...

class ReadTableResponse(_message.Message):
    __slots__ = ("rows", "has_more", "next", "decisions")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    rows: bytes
    has_more: bool
    next: int
    decisions: int
    def __init__(self, rows: _Optional[bytes] = ..., has_more: bool = ..., next: _Optional[int] = ..., decisions: _Optional[int] = ...) -> None: ...

class ListEntriesRequest(_message.Message):
    __slots__ = ("partition_id", "start", "end")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    start: int
    end: int
    def __init__(self, partition_id: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class ListEntriesResponse(_message.Message):
    __slots__ = ("entries", "has_more", "next_start", "segments", "producers", "not_hot", "segment_roots")
    class SegmentsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    class ProducersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    class SegmentRootsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_START_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    NOT_HOT_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_ROOTS_FIELD_NUMBER: _ClassVar[int]
    entries: bytes
    has_more: bool
    next_start: int
    segments: _containers.ScalarMap[int, str]
    producers: _containers.ScalarMap[int, str]
    not_hot: bool
    segment_roots: _containers.ScalarMap[int, int]
    def __init__(self, entries: _Optional[bytes] = ..., has_more: bool = ..., next_start: _Optional[int] = ..., segments: _Optional[_Mapping[int, str]] = ..., producers: _Optional[_Mapping[int, str]] = ..., not_hot: bool = ..., segment_roots: _Optional[_Mapping[int, int]] = ...) -> None: ...

class ListDecisionsRequest(_message.Message):
    __slots__ = ("partition_id", "start", "end", "aborted_only", "decisions")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    ABORTED_ONLY_FIELD_NUMBER: _ClassVar[int]
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    start: int
    end: int
    aborted_only: bool
    decisions: int
    def __init__(self, partition_id: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., aborted_only: bool = ..., decisions: _Optional[int] = ...) -> None: ...

class ListDecisionsResponse(_message.Message):
    __slots__ = ("transactions", "has_more", "next_start")
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_START_FIELD_NUMBER: _ClassVar[int]
    transactions: bytes
    has_more: bool
    next_start: int
    def __init__(self, transactions: _Optional[bytes] = ..., has_more: bool = ..., next_start: _Optional[int] = ...) -> None: ...

class ListSegmentsRequest(_message.Message):
    __slots__ = ("after_segment_id",)
    AFTER_SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    after_segment_id: int
    def __init__(self, after_segment_id: _Optional[int] = ...) -> None: ...

class ListSegmentsResponse(_message.Message):
    __slots__ = ("paths", "last_segment_id", "has_more")
    PATHS_FIELD_NUMBER: _ClassVar[int]
    LAST_SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    paths: _containers.RepeatedScalarFieldContainer[str]
    last_segment_id: int
    has_more: bool
    def __init__(self, paths: _Optional[_Iterable[str]] = ..., last_segment_id: _Optional[int] = ..., has_more: bool = ...) -> None: ...

class CondemnSegmentsRequest(_message.Message):
    __slots__ = ("paths",)
    PATHS_FIELD_NUMBER: _ClassVar[int]
    paths: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, paths: _Optional[_Iterable[str]] = ...) -> None: ...

class CondemnSegmentsResponse(_message.Message):
    __slots__ = ("paths",)
    PATHS_FIELD_NUMBER: _ClassVar[int]
    paths: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, paths: _Optional[_Iterable[str]] = ...) -> None: ...

class JudgeFilesRequest(_message.Message):
    __slots__ = ("uris", "doom", "settled")
    URIS_FIELD_NUMBER: _ClassVar[int]
    DOOM_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    uris: _containers.RepeatedScalarFieldContainer[str]
    doom: FileDoom
    settled: bool
    def __init__(self, uris: _Optional[_Iterable[str]] = ..., doom: _Optional[_Union[FileDoom, str]] = ..., settled: bool = ...) -> None: ...

class JudgeFilesResponse(_message.Message):
    __slots__ = ("verdicts", "recovered_at_ms")
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    RECOVERED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    verdicts: _containers.RepeatedScalarFieldContainer[FileVerdict]
    recovered_at_ms: int
    def __init__(self, verdicts: _Optional[_Iterable[_Union[FileVerdict, str]]] = ..., recovered_at_ms: _Optional[int] = ...) -> None: ...

class CloseProducerRequest(_message.Message):
    __slots__ = ("producer_id", "epoch")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    epoch: int
    def __init__(self, producer_id: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class CloseProducerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TieredCopy(_message.Message):
    __slots__ = ("uri", "size", "footer_bytes", "footer_crc32c")
    URI_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    FOOTER_BYTES_FIELD_NUMBER: _ClassVar[int]
    FOOTER_CRC32C_FIELD_NUMBER: _ClassVar[int]
    uri: str
    size: int
    footer_bytes: int
    footer_crc32c: int
    def __init__(self, uri: _Optional[str] = ..., size: _Optional[int] = ..., footer_bytes: _Optional[int] = ..., footer_crc32c: _Optional[int] = ...) -> None: ...

class ListCopiesRequest(_message.Message):
    __slots__ = ("partition_id", "start", "end")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    start: int
    end: int
    def __init__(self, partition_id: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class LedgerCopies(_message.Message):
    __slots__ = ("ledger_id", "hot", "tiered")
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    HOT_FIELD_NUMBER: _ClassVar[int]
    TIERED_FIELD_NUMBER: _ClassVar[int]
    ledger_id: int
    hot: bool
    tiered: TieredCopy
    def __init__(self, ledger_id: _Optional[int] = ..., hot: bool = ..., tiered: _Optional[_Union[TieredCopy, _Mapping]] = ...) -> None: ...

class ListCopiesResponse(_message.Message):
    __slots__ = ("ledgers", "data_read_priority")
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    DATA_READ_PRIORITY_FIELD_NUMBER: _ClassVar[int]
    ledgers: _containers.RepeatedCompositeFieldContainer[LedgerCopies]
    data_read_priority: ReadPriority
    def __init__(self, ledgers: _Optional[_Iterable[_Union[LedgerCopies, _Mapping]]] = ..., data_read_priority: _Optional[_Union[ReadPriority, str]] = ...) -> None: ...

class ListOffloadableRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class OffloadableLedger(_message.Message):
    __slots__ = ("partition", "partition_id", "ledger_id", "entries", "messages", "bytes", "created_at_ms", "closed_at_ms")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    CLOSED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    partition: int
    partition_id: int
    ledger_id: int
    entries: int
    messages: int
    bytes: int
    created_at_ms: int
    closed_at_ms: int
    def __init__(self, partition: _Optional[int] = ..., partition_id: _Optional[int] = ..., ledger_id: _Optional[int] = ..., entries: _Optional[int] = ..., messages: _Optional[int] = ..., bytes: _Optional[int] = ..., created_at_ms: _Optional[int] = ..., closed_at_ms: _Optional[int] = ...) -> None: ...

class ListOffloadableResponse(_message.Message):
    __slots__ = ("ledgers", "now_ms")
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    ledgers: _containers.RepeatedCompositeFieldContainer[OffloadableLedger]
    now_ms: int
    def __init__(self, ledgers: _Optional[_Iterable[_Union[OffloadableLedger, _Mapping]]] = ..., now_ms: _Optional[int] = ...) -> None: ...

class BeginOffloadRequest(_message.Message):
    __slots__ = ("request_id", "partition_id", "ledger_id", "uri")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    partition_id: int
    ledger_id: int
    uri: str
    def __init__(self, request_id: _Optional[str] = ..., partition_id: _Optional[int] = ..., ledger_id: _Optional[int] = ..., uri: _Optional[str] = ...) -> None: ...

class BeginOffloadResponse(_message.Message):
    __slots__ = ("copy_id",)
    COPY_ID_FIELD_NUMBER: _ClassVar[int]
    copy_id: int
    def __init__(self, copy_id: _Optional[int] = ...) -> None: ...

class CompleteOffloadRequest(_message.Message):
    __slots__ = ("copy_id", "copy")
    COPY_ID_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    copy_id: int
    copy: TieredCopy
    def __init__(self, copy_id: _Optional[int] = ..., copy: _Optional[_Union[TieredCopy, _Mapping]] = ...) -> None: ...

class CompleteOffloadResponse(_message.Message):
    __slots__ = ("accepted",)
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    accepted: bool
    def __init__(self, accepted: bool = ...) -> None: ...

class AbandonOffloadRequest(_message.Message):
    __slots__ = ("copy_id",)
    COPY_ID_FIELD_NUMBER: _ClassVar[int]
    copy_id: int
    def __init__(self, copy_id: _Optional[int] = ...) -> None: ...

class AbandonOffloadResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteCopiesRequest(_message.Message):
    __slots__ = ("request_id", "topic", "tier", "ledger_ids")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    LEDGER_IDS_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    topic: str
    tier: Tier
    ledger_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request_id: _Optional[str] = ..., topic: _Optional[str] = ..., tier: _Optional[_Union[Tier, str]] = ..., ledger_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class DeleteCopiesResponse(_message.Message):
    __slots__ = ("ledgers",)
    LEDGERS_FIELD_NUMBER: _ClassVar[int]
    ledgers: int
    def __init__(self, ledgers: _Optional[int] = ...) -> None: ...

class TrimTopicRequest(_message.Message):
    __slots__ = ("request_id", "topic", "before", "older_than_ms", "keep_bytes", "apply_retention")
    class BeforeEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    OLDER_THAN_MS_FIELD_NUMBER: _ClassVar[int]
    KEEP_BYTES_FIELD_NUMBER: _ClassVar[int]
    APPLY_RETENTION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    topic: str
    before: _containers.ScalarMap[int, int]
    older_than_ms: int
    keep_bytes: int
    apply_retention: bool
    def __init__(self, request_id: _Optional[str] = ..., topic: _Optional[str] = ..., before: _Optional[_Mapping[int, int]] = ..., older_than_ms: _Optional[int] = ..., keep_bytes: _Optional[int] = ..., apply_retention: bool = ...) -> None: ...

class TrimTopicResponse(_message.Message):
    __slots__ = ("partitions",)
    class Partition(_message.Message):
        __slots__ = ("partition", "ledgers", "messages", "bytes", "log_start", "held_by")
        PARTITION_FIELD_NUMBER: _ClassVar[int]
        LEDGERS_FIELD_NUMBER: _ClassVar[int]
        MESSAGES_FIELD_NUMBER: _ClassVar[int]
        BYTES_FIELD_NUMBER: _ClassVar[int]
        LOG_START_FIELD_NUMBER: _ClassVar[int]
        HELD_BY_FIELD_NUMBER: _ClassVar[int]
        partition: int
        ledgers: int
        messages: int
        bytes: int
        log_start: int
        held_by: str
        def __init__(self, partition: _Optional[int] = ..., ledgers: _Optional[int] = ..., messages: _Optional[int] = ..., bytes: _Optional[int] = ..., log_start: _Optional[int] = ..., held_by: _Optional[str] = ...) -> None: ...
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[TrimTopicResponse.Partition]
    def __init__(self, partitions: _Optional[_Iterable[_Union[TrimTopicResponse.Partition, _Mapping]]] = ...) -> None: ...

class ListDoomedFilesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListDoomedFilesResponse(_message.Message):
    __slots__ = ("files",)
    class File(_message.Message):
        __slots__ = ("doomed_id", "uri")
        DOOMED_ID_FIELD_NUMBER: _ClassVar[int]
        URI_FIELD_NUMBER: _ClassVar[int]
        doomed_id: int
        uri: str
        def __init__(self, doomed_id: _Optional[int] = ..., uri: _Optional[str] = ...) -> None: ...
    FILES_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[ListDoomedFilesResponse.File]
    def __init__(self, files: _Optional[_Iterable[_Union[ListDoomedFilesResponse.File, _Mapping]]] = ...) -> None: ...

class ForgetDoomedFilesRequest(_message.Message):
    __slots__ = ("doomed_ids",)
    DOOMED_IDS_FIELD_NUMBER: _ClassVar[int]
    doomed_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, doomed_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class ForgetDoomedFilesResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PolicyScope(_message.Message):
    __slots__ = ("topic", "namespace")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    namespace: str
    def __init__(self, topic: _Optional[str] = ..., namespace: _Optional[str] = ...) -> None: ...

class ChangePoliciesRequest(_message.Message):
    __slots__ = ("request_id", "scope", "set", "remove")
    class SetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    scope: PolicyScope
    set: _containers.ScalarMap[str, str]
    remove: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, request_id: _Optional[str] = ..., scope: _Optional[_Union[PolicyScope, _Mapping]] = ..., set: _Optional[_Mapping[str, str]] = ..., remove: _Optional[_Iterable[str]] = ...) -> None: ...

class ChangePoliciesResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetPoliciesRequest(_message.Message):
    __slots__ = ("scope",)
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    scope: PolicyScope
    def __init__(self, scope: _Optional[_Union[PolicyScope, _Mapping]] = ...) -> None: ...

class GetPoliciesResponse(_message.Message):
    __slots__ = ("set", "effective")
    class SetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class Effective(_message.Message):
        __slots__ = ("name", "value", "source")
        NAME_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        SOURCE_FIELD_NUMBER: _ClassVar[int]
        name: str
        value: str
        source: PolicySource
        def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., source: _Optional[_Union[PolicySource, str]] = ...) -> None: ...
    SET_FIELD_NUMBER: _ClassVar[int]
    EFFECTIVE_FIELD_NUMBER: _ClassVar[int]
    set: _containers.ScalarMap[str, str]
    effective: _containers.RepeatedCompositeFieldContainer[GetPoliciesResponse.Effective]
    def __init__(self, set: _Optional[_Mapping[str, str]] = ..., effective: _Optional[_Iterable[_Union[GetPoliciesResponse.Effective, _Mapping]]] = ...) -> None: ...

class MessagePoint(_message.Message):
    __slots__ = ("partition_id", "position", "index")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    position: int
    index: int
    def __init__(self, partition_id: _Optional[int] = ..., position: _Optional[int] = ..., index: _Optional[int] = ...) -> None: ...

class MessageRange(_message.Message):
    __slots__ = ("start_position", "start_index", "end_position", "end_index", "messages")
    START_POSITION_FIELD_NUMBER: _ClassVar[int]
    START_INDEX_FIELD_NUMBER: _ClassVar[int]
    END_POSITION_FIELD_NUMBER: _ClassVar[int]
    END_INDEX_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    start_position: int
    start_index: int
    end_position: int
    end_index: int
    messages: int
    def __init__(self, start_position: _Optional[int] = ..., start_index: _Optional[int] = ..., end_position: _Optional[int] = ..., end_index: _Optional[int] = ..., messages: _Optional[int] = ...) -> None: ...

class Acknowledgements(_message.Message):
    __slots__ = ("partition_id", "ranges", "up_to")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    UP_TO_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    ranges: _containers.RepeatedCompositeFieldContainer[MessageRange]
    up_to: MessagePoint
    def __init__(self, partition_id: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[MessageRange, _Mapping]]] = ..., up_to: _Optional[_Union[MessagePoint, _Mapping]] = ...) -> None: ...

class SubscriptionAcknowledgements(_message.Message):
    __slots__ = ("subscription_id", "consumer_id", "epoch", "partitions")
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    subscription_id: int
    consumer_id: int
    epoch: int
    partitions: _containers.RepeatedCompositeFieldContainer[Acknowledgements]
    def __init__(self, subscription_id: _Optional[int] = ..., consumer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[Acknowledgements, _Mapping]]] = ...) -> None: ...

class SubscriptionPlace(_message.Message):
    __slots__ = ("where", "points")
    WHERE_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    where: TopicEnd
    points: _containers.RepeatedCompositeFieldContainer[MessagePoint]
    def __init__(self, where: _Optional[_Union[TopicEnd, str]] = ..., points: _Optional[_Iterable[_Union[MessagePoint, _Mapping]]] = ...) -> None: ...

class SubscriptionPartition(_message.Message):
    __slots__ = ("partition_id", "partition", "mark", "acknowledged", "bound", "backlog")
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    MARK_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_FIELD_NUMBER: _ClassVar[int]
    partition_id: int
    partition: int
    mark: MessagePoint
    acknowledged: _containers.RepeatedCompositeFieldContainer[MessageRange]
    bound: int
    backlog: int
    def __init__(self, partition_id: _Optional[int] = ..., partition: _Optional[int] = ..., mark: _Optional[_Union[MessagePoint, _Mapping]] = ..., acknowledged: _Optional[_Iterable[_Union[MessageRange, _Mapping]]] = ..., bound: _Optional[int] = ..., backlog: _Optional[int] = ...) -> None: ...

class ConsumerInfo(_message.Message):
    __slots__ = ("consumer_id", "name", "connected_at_ms", "active", "unacknowledged")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    UNACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    name: str
    connected_at_ms: int
    active: bool
    unacknowledged: int
    def __init__(self, consumer_id: _Optional[int] = ..., name: _Optional[str] = ..., connected_at_ms: _Optional[int] = ..., active: bool = ..., unacknowledged: _Optional[int] = ...) -> None: ...

class Subscription(_message.Message):
    __slots__ = ("subscription_id", "name", "type", "isolation_level", "durable", "epoch", "ignored_acknowledgements", "partitions", "consumers", "held_by", "redeliverable")
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_LEVEL_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    IGNORED_ACKNOWLEDGEMENTS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    HELD_BY_FIELD_NUMBER: _ClassVar[int]
    REDELIVERABLE_FIELD_NUMBER: _ClassVar[int]
    subscription_id: int
    name: str
    type: SubscriptionType
    isolation_level: IsolationLevel
    durable: bool
    epoch: int
    ignored_acknowledgements: int
    partitions: _containers.RepeatedCompositeFieldContainer[SubscriptionPartition]
    consumers: _containers.RepeatedCompositeFieldContainer[ConsumerInfo]
    held_by: _containers.RepeatedCompositeFieldContainer[TxnId]
    redeliverable: int
    def __init__(self, subscription_id: _Optional[int] = ..., name: _Optional[str] = ..., type: _Optional[_Union[SubscriptionType, str]] = ..., isolation_level: _Optional[_Union[IsolationLevel, str]] = ..., durable: bool = ..., epoch: _Optional[int] = ..., ignored_acknowledgements: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[SubscriptionPartition, _Mapping]]] = ..., consumers: _Optional[_Iterable[_Union[ConsumerInfo, _Mapping]]] = ..., held_by: _Optional[_Iterable[_Union[TxnId, _Mapping]]] = ..., redeliverable: _Optional[int] = ...) -> None: ...

class CreateSubscriptionRequest(_message.Message):
    __slots__ = ("request_id", "topic", "name", "type", "isolation_level", "place")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_LEVEL_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    topic: str
    name: str
    type: SubscriptionType
    isolation_level: IsolationLevel
    place: SubscriptionPlace
    def __init__(self, request_id: _Optional[str] = ..., topic: _Optional[str] = ..., name: _Optional[str] = ..., type: _Optional[_Union[SubscriptionType, str]] = ..., isolation_level: _Optional[_Union[IsolationLevel, str]] = ..., place: _Optional[_Union[SubscriptionPlace, _Mapping]] = ...) -> None: ...

class CreateSubscriptionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSubscriptionsRequest(_message.Message):
    __slots__ = ("topic", "name", "brief")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    BRIEF_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    brief: bool
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., brief: bool = ...) -> None: ...

class ListSubscriptionsResponse(_message.Message):
    __slots__ = ("subscriptions",)
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    subscriptions: _containers.RepeatedCompositeFieldContainer[Subscription]
    def __init__(self, subscriptions: _Optional[_Iterable[_Union[Subscription, _Mapping]]] = ...) -> None: ...

class DeleteSubscriptionRequest(_message.Message):
    __slots__ = ("request_id", "topic", "name")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    topic: str
    name: str
    def __init__(self, request_id: _Optional[str] = ..., topic: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class DeleteSubscriptionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SeekSubscriptionRequest(_message.Message):
    __slots__ = ("request_id", "topic", "name", "place", "epoch")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    topic: str
    name: str
    place: SubscriptionPlace
    epoch: int
    def __init__(self, request_id: _Optional[str] = ..., topic: _Optional[str] = ..., name: _Optional[str] = ..., place: _Optional[_Union[SubscriptionPlace, _Mapping]] = ..., epoch: _Optional[int] = ...) -> None: ...

class SeekSubscriptionResponse(_message.Message):
    __slots__ = ("epoch", "points", "moved_partition_ids")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    MOVED_PARTITION_IDS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    points: _containers.RepeatedCompositeFieldContainer[MessagePoint]
    moved_partition_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, epoch: _Optional[int] = ..., points: _Optional[_Iterable[_Union[MessagePoint, _Mapping]]] = ..., moved_partition_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class SetSubscriptionIsolationLevelRequest(_message.Message):
    __slots__ = ("request_id", "topic", "name", "isolation_level")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ISOLATION_LEVEL_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    topic: str
    name: str
    isolation_level: IsolationLevel
    def __init__(self, request_id: _Optional[str] = ..., topic: _Optional[str] = ..., name: _Optional[str] = ..., isolation_level: _Optional[_Union[IsolationLevel, str]] = ...) -> None: ...

class SetSubscriptionIsolationLevelResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CountMessagesRequest(_message.Message):
    __slots__ = ("isolation_level", "points")
    ISOLATION_LEVEL_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    isolation_level: IsolationLevel
    points: _containers.RepeatedCompositeFieldContainer[MessagePoint]
    def __init__(self, isolation_level: _Optional[_Union[IsolationLevel, str]] = ..., points: _Optional[_Iterable[_Union[MessagePoint, _Mapping]]] = ...) -> None: ...

class CountMessagesResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: int
    def __init__(self, messages: _Optional[int] = ...) -> None: ...

class ConsumeRequest(_message.Message):
    __slots__ = ("sequence", "subscribe", "flow", "acknowledge", "redeliver", "seek", "leave", "count")
    class Subscribe(_message.Message):
        __slots__ = ("topic", "name", "type", "isolation_level", "durable", "place", "consumer_name", "token", "received", "counts")
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        NAME_FIELD_NUMBER: _ClassVar[int]
        TYPE_FIELD_NUMBER: _ClassVar[int]
        ISOLATION_LEVEL_FIELD_NUMBER: _ClassVar[int]
        DURABLE_FIELD_NUMBER: _ClassVar[int]
        PLACE_FIELD_NUMBER: _ClassVar[int]
        CONSUMER_NAME_FIELD_NUMBER: _ClassVar[int]
        TOKEN_FIELD_NUMBER: _ClassVar[int]
        RECEIVED_FIELD_NUMBER: _ClassVar[int]
        COUNTS_FIELD_NUMBER: _ClassVar[int]
        topic: str
        name: str
        type: SubscriptionType
        isolation_level: IsolationLevel
        durable: bool
        place: SubscriptionPlace
        consumer_name: str
        token: str
        received: ConsumeRequest.Redeliver
        counts: bool
        def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., type: _Optional[_Union[SubscriptionType, str]] = ..., isolation_level: _Optional[_Union[IsolationLevel, str]] = ..., durable: bool = ..., place: _Optional[_Union[SubscriptionPlace, _Mapping]] = ..., consumer_name: _Optional[str] = ..., token: _Optional[str] = ..., received: _Optional[_Union[ConsumeRequest.Redeliver, _Mapping]] = ..., counts: bool = ...) -> None: ...
    class Flow(_message.Message):
        __slots__ = ("epoch", "messages")
        EPOCH_FIELD_NUMBER: _ClassVar[int]
        MESSAGES_FIELD_NUMBER: _ClassVar[int]
        epoch: int
        messages: int
        def __init__(self, epoch: _Optional[int] = ..., messages: _Optional[int] = ...) -> None: ...
    class Redeliver(_message.Message):
        __slots__ = ("epoch", "ranges")
        EPOCH_FIELD_NUMBER: _ClassVar[int]
        RANGES_FIELD_NUMBER: _ClassVar[int]
        epoch: int
        ranges: _containers.RepeatedCompositeFieldContainer[Acknowledgements]
        def __init__(self, epoch: _Optional[int] = ..., ranges: _Optional[_Iterable[_Union[Acknowledgements, _Mapping]]] = ...) -> None: ...
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    FLOW_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    REDELIVER_FIELD_NUMBER: _ClassVar[int]
    SEEK_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    subscribe: ConsumeRequest.Subscribe
    flow: ConsumeRequest.Flow
    acknowledge: SubscriptionAcknowledgements
    redeliver: ConsumeRequest.Redeliver
    seek: SeekSubscriptionRequest
    leave: ConsumeRequest.Redeliver
    count: ConsumeRequest.Redeliver
    def __init__(self, sequence: _Optional[int] = ..., subscribe: _Optional[_Union[ConsumeRequest.Subscribe, _Mapping]] = ..., flow: _Optional[_Union[ConsumeRequest.Flow, _Mapping]] = ..., acknowledge: _Optional[_Union[SubscriptionAcknowledgements, _Mapping]] = ..., redeliver: _Optional[_Union[ConsumeRequest.Redeliver, _Mapping]] = ..., seek: _Optional[_Union[SeekSubscriptionRequest, _Mapping]] = ..., leave: _Optional[_Union[ConsumeRequest.Redeliver, _Mapping]] = ..., count: _Optional[_Union[ConsumeRequest.Redeliver, _Mapping]] = ...) -> None: ...

class ConsumeResponse(_message.Message):
    __slots__ = ("subscribed", "delivery", "receipt", "epoch_change", "partitions_added")
    class Subscribed(_message.Message):
        __slots__ = ("subscription_id", "consumer_id", "epoch", "active", "isolation_level", "topic", "points", "created")
        SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
        CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
        EPOCH_FIELD_NUMBER: _ClassVar[int]
        ACTIVE_FIELD_NUMBER: _ClassVar[int]
        ISOLATION_LEVEL_FIELD_NUMBER: _ClassVar[int]
        TOPIC_FIELD_NUMBER: _ClassVar[int]
        POINTS_FIELD_NUMBER: _ClassVar[int]
        CREATED_FIELD_NUMBER: _ClassVar[int]
        subscription_id: int
        consumer_id: int
        epoch: int
        active: bool
        isolation_level: IsolationLevel
        topic: TopicView
        points: _containers.RepeatedCompositeFieldContainer[MessagePoint]
        created: bool
        def __init__(self, subscription_id: _Optional[int] = ..., consumer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., active: bool = ..., isolation_level: _Optional[_Union[IsolationLevel, str]] = ..., topic: _Optional[_Union[TopicView, _Mapping]] = ..., points: _Optional[_Iterable[_Union[MessagePoint, _Mapping]]] = ..., created: bool = ...) -> None: ...
    class Delivery(_message.Message):
        __slots__ = ("epoch", "partition_id", "start", "end", "wanted", "messages", "decisions", "redeliveries", "unsure", "copies", "entries", "aborted")
        EPOCH_FIELD_NUMBER: _ClassVar[int]
        PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
        START_FIELD_NUMBER: _ClassVar[int]
        END_FIELD_NUMBER: _ClassVar[int]
        WANTED_FIELD_NUMBER: _ClassVar[int]
        MESSAGES_FIELD_NUMBER: _ClassVar[int]
        DECISIONS_FIELD_NUMBER: _ClassVar[int]
        REDELIVERIES_FIELD_NUMBER: _ClassVar[int]
        UNSURE_FIELD_NUMBER: _ClassVar[int]
        COPIES_FIELD_NUMBER: _ClassVar[int]
        ENTRIES_FIELD_NUMBER: _ClassVar[int]
        ABORTED_FIELD_NUMBER: _ClassVar[int]
        epoch: int
        partition_id: int
        start: int
        end: int
        wanted: _containers.RepeatedCompositeFieldContainer[MessageRange]
        messages: int
        decisions: int
        redeliveries: int
        unsure: bool
        copies: ListCopiesResponse
        entries: ListEntriesResponse
        aborted: ListDecisionsResponse
        def __init__(self, epoch: _Optional[int] = ..., partition_id: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., wanted: _Optional[_Iterable[_Union[MessageRange, _Mapping]]] = ..., messages: _Optional[int] = ..., decisions: _Optional[int] = ..., redeliveries: _Optional[int] = ..., unsure: bool = ..., copies: _Optional[_Union[ListCopiesResponse, _Mapping]] = ..., entries: _Optional[_Union[ListEntriesResponse, _Mapping]] = ..., aborted: _Optional[_Union[ListDecisionsResponse, _Mapping]] = ...) -> None: ...
    class Receipt(_message.Message):
        __slots__ = ("sequence", "error", "sought")
        SEQUENCE_FIELD_NUMBER: _ClassVar[int]
        ERROR_FIELD_NUMBER: _ClassVar[int]
        SOUGHT_FIELD_NUMBER: _ClassVar[int]
        sequence: int
        error: Error
        sought: SeekSubscriptionResponse
        def __init__(self, sequence: _Optional[int] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., sought: _Optional[_Union[SeekSubscriptionResponse, _Mapping]] = ...) -> None: ...
    class PartitionsAdded(_message.Message):
        __slots__ = ("partitions", "points")
        PARTITIONS_FIELD_NUMBER: _ClassVar[int]
        POINTS_FIELD_NUMBER: _ClassVar[int]
        partitions: _containers.RepeatedCompositeFieldContainer[Partition]
        points: _containers.RepeatedCompositeFieldContainer[MessagePoint]
        def __init__(self, partitions: _Optional[_Iterable[_Union[Partition, _Mapping]]] = ..., points: _Optional[_Iterable[_Union[MessagePoint, _Mapping]]] = ...) -> None: ...
    class EpochChange(_message.Message):
        __slots__ = ("epoch", "active")
        EPOCH_FIELD_NUMBER: _ClassVar[int]
        ACTIVE_FIELD_NUMBER: _ClassVar[int]
        epoch: int
        active: bool
        def __init__(self, epoch: _Optional[int] = ..., active: bool = ...) -> None: ...
    SUBSCRIBED_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_CHANGE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_ADDED_FIELD_NUMBER: _ClassVar[int]
    subscribed: ConsumeResponse.Subscribed
    delivery: ConsumeResponse.Delivery
    receipt: ConsumeResponse.Receipt
    epoch_change: ConsumeResponse.EpochChange
    partitions_added: ConsumeResponse.PartitionsAdded
    def __init__(self, subscribed: _Optional[_Union[ConsumeResponse.Subscribed, _Mapping]] = ..., delivery: _Optional[_Union[ConsumeResponse.Delivery, _Mapping]] = ..., receipt: _Optional[_Union[ConsumeResponse.Receipt, _Mapping]] = ..., epoch_change: _Optional[_Union[ConsumeResponse.EpochChange, _Mapping]] = ..., partitions_added: _Optional[_Union[ConsumeResponse.PartitionsAdded, _Mapping]] = ...) -> None: ...
