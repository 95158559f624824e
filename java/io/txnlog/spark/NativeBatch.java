package io.txnlog.spark;

import static io.txnlog.spark.SparkVersion.linked;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * A read of tiered objects by Spark's own Parquet reader, in columns.
 *
 * <p>It is for reads that lie in such objects as a whole and say themselves where they end: a scan is columnar or not,
 * which must be known before the query's cut. What another reader takes has no second copy to fall back to.
 *
 * @param parquet Spark's batch; null if the Python source reads.
 * @param text which of the two reads, and why.
 */
record NativeBatch(Batch parquet, String text) implements Batch {
  /** Returns how a read is to be done, as the log is now. */
  static NativeBatch of(TxnLogRead read) {
    if (read.needsNoMessages() || !read.ofMessages()) {
      return byPython("it is the log's metadata");
    }
    if (!TxnLogTable.hasItsOwnEnd(read.options())) {
      return byPython("its end is the log's when it runs");
    }
    JsonNode found;
    try {
      found = read.table().log().ask(
          "native", Map.of("options", read.options(), "columns", List.of(read.columns().fieldNames())));
    } catch (TxnLogException e) {
      return byPython(e.code); // which says it when the query runs
    }
    if (found.has("reason")) {
      return byPython(found.get("reason").asText());
    }
    List<String> locations = new ArrayList<>();
    found.get("locations").forEach(each -> locations.add(each.asText()));
    Map<String, String> options = LogCalls.texts(found.get("options"));
    Set<String> misjudged = new HashSet<>();
    found.get("misjudged").forEach(each -> misjudged.add(each.asText()));
    List<Predicate> safe = read.filters().stream().filter(each -> isSafe(each, misjudged)).toList();
    Batch parquet = linked(() -> SparkInternals.parquet(locations, options, read.columns(), safe));
    return new NativeBatch(parquet, "native: " + locations.size() + " objects");
  }

  /** Tells whether Spark's Parquet reader may skip by a filter; a part of a column is named by the column first. */
  private static boolean isSafe(Predicate filter, Set<String> misjudged) {
    return Arrays.stream(filter.references()).noneMatch(each -> misjudged.contains(each.fieldNames()[0]));
  }

  private static NativeBatch byPython(String reason) {
    return new NativeBatch(null, "by Python: " + reason);
  }

  @Override
  public InputPartition[] planInputPartitions() {
    return taken(parquet::planInputPartitions);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new Factory(parquet.createReaderFactory());
  }

  private static <T> T taken(Step<T> step) {
    try {
      return step.take();
    } catch (Exception e) { // Spark's are checked ones, which it throws without declaring them
      throw lost(e);
    }
  }

  private static TxnLogException lost(Exception cause) {
    TxnLogException error = new TxnLogException("SEGMENT_UNREADABLE", "Spark's Parquet reader failed on a tiered object ("
        + cause.getMessage() + "). Read with the option nativeTieredReads=false, which takes the hot copy where there is"
        + " one.");
    error.initCause(cause);
    return error;
  }

  /** Lets Spark's readers fail in our words. */
  private record Factory(PartitionReaderFactory parquet) implements PartitionReaderFactory {
    @Override
    public PartitionReader<InternalRow> createReader(InputPartition task) {
      return new Reader<>(() -> parquet.createReader(task));
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition task) {
      return new Reader<>(() -> parquet.createColumnarReader(task));
    }

    @Override
    public boolean supportColumnarReads(InputPartition task) {
      return parquet.supportColumnarReads(task);
    }
  }

  /** What may fail at each step. */
  private interface Step<T> {
    T take() throws IOException;
  }

  private static final class Reader<T> implements PartitionReader<T> {
    private final PartitionReader<T> parquet;

    Reader(Step<PartitionReader<T>> opened) {
      parquet = taken(opened);
    }

    @Override
    public boolean next() {
      return taken(parquet::next);
    }

    @Override
    public T get() {
      return taken(parquet::get);
    }

    @Override
    public void close() throws IOException {
      parquet.close();
    }
  }
}
