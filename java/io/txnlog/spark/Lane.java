package io.txnlog.spark;

import static io.txnlog.spark.SparkVersion.linked;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Tasks whose rows reach Spark in columns: Java reads entries of segments from their files, Python all else.
 *
 * @param text how many entries are read by which of them, and why not all by Java.
 */
record Lane(InputPartition[] planInputPartitions, StructType columns, String text) implements Batch {
  /** The function {@code txn_source.spark.tasks.read_rows}, without a type, as Python's first pickle protocol has it. */
  private static final String READ_ROWS = "(ctxn_source.spark.tasks\nread_rows\nNt.";

  /**
   * A task, whose steps are read one after the other.
   *
   * @param python all of it, as Python pickled it.
   * @param stored the columns that files have, as Arrow's schema.
   */
  record Task(byte[] python, byte[] stored, Step[] steps) implements InputPartition {}

  /**
   * The parts of a task from {@code first}, inclusive, to {@code last}, exclusive; -1 stands for all.
   *
   * @param entries what Java reads in the place of the only part; null if Python reads.
   */
  record Step(int first, int last, EntryRun entries) implements Serializable {}

  /** Returns the tasks that the log's process planned. */
  static Lane of(JsonNode plan, StructType columns) {
    List<InputPartition> tasks = new ArrayList<>();
    byte[] stored = LogCalls.bytes(plan.get("stored"));
    int entries = 0;
    for (JsonNode of : plan.get("tasks")) {
      List<Step> steps = new ArrayList<>();
      for (JsonNode step : of.get("steps")) {
        EntryRun run = step.has("entries") ? EntryRun.of(step) : null;
        entries += run == null ? 0 : run.size();
        steps.add(new Step(step.get("first").asInt(), step.get("last").asInt(), run));
      }
      tasks.add(new Task(LogCalls.bytes(of.get("python")), stored, steps.toArray(Step[]::new)));
    }
    String why = LogCalls.texts(plan.get("why")).entrySet().stream()
        .map(each -> each.getValue() + " with " + each.getKey()).collect(Collectors.joining(", "));
    String text = "entries read by Java: " + entries + (why.isEmpty() ? "" : "; parts read by Python: " + why);
    return new Lane(tasks.toArray(InputPartition[]::new), columns, text);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return factory(columns);
  }

  /** Returns what reads such tasks, with the settings of the session that plans them. */
  static PartitionReaderFactory factory(StructType columns) {
    return new Factory(linked(() -> SparkInternals.pythonRun(READ_ROWS)), columns);
  }

  private record Factory(SparkInternals.PythonRun python, StructType columns) implements PartitionReaderFactory {
    @Override
    public boolean supportColumnarReads(InputPartition task) {
      return true;
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition task) {
      return new LaneReader(python, columns, (Task) task);
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition task) {
      throw new UnsupportedOperationException("read in columns");
    }
  }
}
