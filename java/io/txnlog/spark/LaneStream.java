package io.txnlog.spark;

import static io.txnlog.spark.SparkVersion.linked;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;

/** A stream whose state the log's process holds. Its rows reach Spark in columns, in real time one by one. */
final class LaneStream
    implements MicroBatchStream, SupportsTriggerAvailableNow, SupportsRealTimeMode, ReportsSourceMetrics {
  private final String id = UUID.randomUUID().toString();
  private final String name;
  private final StructType columns;
  private final LogCalls log;
  private final Map<String, String> options;
  private Offset initial;
  private Offset newest;
  private boolean frozen;
  private boolean stopped;
  private volatile boolean realTime;
  private String kept;
  private Lane planned;

  LaneStream(String name, StructType columns, LogCalls log, Map<String, String> options) {
    this.name = name;
    this.columns = columns;
    this.log = log;
    this.options = options;
  }

  /** A place in the log, as the text that checkpoints keep. */
  private static final class At extends Offset {
    private final String json;

    At(JsonNode text) {
      this.json = text.asText();
    }

    At(String json) {
      this.json = json;
    }

    @Override
    public String json() {
      return json;
    }
  }

  /** Returns the name that the source has in the query's progress. */
  @Override
  public String toString() {
    return "txnlog[" + name + "]";
  }

  private JsonNode ask(String call, Map<String, ?> more) {
    return log.ask(call, arguments(more));
  }

  private Map<String, Object> arguments(Map<String, ?> more) {
    Map<String, Object> all = new HashMap<>(more);
    all.put("stream", Map.of("id", id, "options", options, "schema", columns.json(), "frozen", frozen));
    return all;
  }

  /** Returns the start of a new query. Spark asks twice and must get the same answer. */
  @Override
  public Offset initialOffset() {
    if (initial == null) {
      initial = new At(ask("streamInitial", Map.of()));
    }
    return initial;
  }

  @Override
  public Offset latestOffset() {
    throw new UnsupportedOperationException("Spark says where a batch begins");
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    boolean limited = !(limit instanceof ReadAllAvailable);
    JsonNode found = ask("streamLatest", Map.of("start", start.json(), "limited", limited));
    newest = new At(found.get("newest"));
    return new At(found.get("end"));
  }

  /** Returns a limit of any size: the options have the limits, and Python applies them. */
  @Override
  public ReadLimit getDefaultReadLimit() {
    return ReadLimit.maxRows(Long.MAX_VALUE);
  }

  /** Returns how far the log could be read when Spark asked for the batch's end, which it does just before. */
  @Override
  public Offset reportLatestOffset() {
    return newest;
  }

  /** Returns how far the query is behind, and which open transaction holds it back; empty if the log doesn't know. */
  @Override
  public Map<String, String> metrics(Optional<Offset> consumed) {
    try {
      return consumed.isEmpty() ? Map.of() : LogCalls.texts(ask("streamBehind", Map.of("at", consumed.get().json())));
    } catch (TxnLogException e) {
      return Map.of("unknown", e.getMessage()); // a figure that is missing must not end the query
    }
  }

  @Override
  public void prepareForTriggerAvailableNow() {
    ask("streamFreeze", Map.of());
    frozen = true;
  }

  @Override
  public Offset deserializeOffset(String json) {
    return new At(json);
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    planned = Lane.planned(
        log, "streamPlan", arguments(Map.of("start", start.json(), "end", end.json())), columns);
    return planned.planInputPartitions();
  }

  /** Returns the reader factory of the batch that was planned last: Spark plans one batch at a time. */
  @Override
  public PartitionReaderFactory createReaderFactory() {
    return realTime ? new RealTimeReader.Factory() : planned.createReaderFactory();
  }

  /** Does nothing after {@link #stop}: Spark may commit the last batch of a stopped stream. */
  @Override
  public void commit(Offset end) {
    if (!stopped) {
      ask("streamCommit", Map.of("end", end.json()));
    }
  }

  @Override
  public void stop() {
    stopped = true;
    ask("streamStop", Map.of());
  }

  /** True if rows reach Spark one by one. */
  boolean inRows() {
    return realTime;
  }

  @Override
  public void prepareForRealTimeMode() {
    realTime = true;
  }

  /** Returns the tasks of a real-time batch; each follows partitions until the batch ends. */
  @Override
  public InputPartition[] planInputPartitions(Offset start) {
    JsonNode planned = log.ask("realTime", Map.of("options", options, "schema", columns.json(), "start", start.json(),
        "tasks", linked(() -> SparkInternals.cores())));
    kept = planned.get("kept").asText();
    return RealTimeReader.tasks(planned, linked(() -> SparkInternals.python()));
  }

  /** Returns the end of a real-time batch. */
  @Override
  public Offset mergeOffsets(PartitionOffset[] places) {
    return new At(log.ask("realTimeEnd", Map.of("kept", kept, "places", places)));
  }
}
