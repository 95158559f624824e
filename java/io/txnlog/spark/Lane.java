package io.txnlog.spark;

import static io.txnlog.spark.SparkVersion.linked;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Tasks whose rows reach Spark in columns. Java reads entries of segments, Spark's Parquet reader reads row groups of
 * objects, and Python reads the other parts.
 *
 * @param text the number of entries and row groups, and the reasons for the parts that Python reads.
 */
record Lane(InputPartition[] planInputPartitions, PartitionReaderFactory createReaderFactory, String text)
    implements Batch {
  /** The function {@code txn_source.spark.tasks.read_rows}, without a type, in pickle protocol 0. */
  private static final String READ_ROWS = "(ctxn_source.spark.tasks\nread_rows\nNt.";

  /**
   * A task, whose steps are read one after the other.
   *
   * @param python all of it, as Python pickled it.
   * @param stored the columns in segments, as an Arrow schema.
   */
  record Task(byte[] python, byte[] stored, Step[] steps) implements InputPartition {}

  /**
   * The parts of a task from {@code first}, inclusive, to {@code last}, exclusive; -1 stands for all.
   *
   * @param entries the entries that have the rows of the only part; null: the part has no entries to read.
   * @param rowGroups likewise for row groups. If both are null, Python reads the parts.
   */
  record Step(int first, int last, EntryRun entries, ObjectRun rowGroups) implements Serializable {
    static Step of(JsonNode said) {
      return new Step(said.get("first").asInt(), said.get("last").asInt(),
          said.has("entries") ? EntryRun.of(said) : null, said.has("object") ? ObjectRun.of(said) : null);
    }
  }

  /** Returns the tasks that the log's process plans. */
  static Lane planned(LogCalls log, String call, Map<String, Object> arguments, StructType columns) {
    Map<String, Object> all = new HashMap<>(arguments);
    all.put("objects", true);
    JsonNode plan = log.ask(call, all);
    PartitionReaderFactory parquet = null;
    if (hasObjects(plan)) {
      parquet = linked(() -> SparkInternals.parquet(LogCalls.texts(plan.get("parquet")),
          stored(columns, LogCalls.texts(plan.get("renamed")))));
      if (!parquet.supportColumnarReads(null)) { // the session's settings make it return rows
        all.put("objects", false);
        return of(log.ask(call, all), columns, null);
      }
    }
    return of(plan, columns, parquet);
  }

  private static Lane of(JsonNode plan, StructType columns, PartitionReaderFactory parquet) {
    List<InputPartition> tasks = new ArrayList<>();
    byte[] stored = LogCalls.bytes(plan.get("stored"));
    int entries = 0;
    int objects = 0;
    for (JsonNode of : plan.get("tasks")) {
      List<Step> steps = new ArrayList<>();
      of.get("steps").forEach(step -> steps.add(Step.of(step)));
      entries += steps.stream().filter(step -> step.entries() != null).mapToInt(step -> step.entries().size()).sum();
      objects += (int) steps.stream().filter(step -> step.rowGroups() != null).count();
      tasks.add(new Task(LogCalls.bytes(of.get("python")), stored, steps.toArray(Step[]::new)));
    }
    String why = LogCalls.texts(plan.get("why")).entrySet().stream()
        .map(each -> each.getValue() + " with " + each.getKey()).collect(Collectors.joining(", "));
    String text = "read from files: " + entries + " entries, " + objects + " runs of row groups"
        + (why.isEmpty() ? "" : "; parts read by Python: " + why);
    SparkInternals.PythonRun python = linked(() -> SparkInternals.pythonRun(READ_ROWS));
    return new Lane(tasks.toArray(InputPartition[]::new), new Factory(python, columns, parquet), text);
  }

  private static boolean hasObjects(JsonNode plan) {
    for (JsonNode task : plan.get("tasks")) {
      for (JsonNode step : task.get("steps")) {
        if (step.has("object")) {
          return true;
        }
      }
    }
    return false;
  }

  /** Returns the columns with their names in objects, without those that objects lack. */
  private static StructType stored(StructType columns, Map<String, String> renamed) {
    StructType stored = new StructType();
    for (StructField field : columns.fields()) {
      if (!field.name().equals("__topic")) {
        stored = stored.add(renamed.getOrDefault(field.name(), field.name()), field.dataType(), field.nullable());
      }
    }
    return stored;
  }

  private record Factory(SparkInternals.PythonRun python, StructType columns, PartitionReaderFactory parquet)
      implements PartitionReaderFactory {
    @Override
    public boolean supportColumnarReads(InputPartition task) {
      return true;
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition task) {
      return new LaneReader(python, columns, parquet, (Task) task);
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition task) {
      throw new UnsupportedOperationException("read in columns");
    }
  }
}
