package io.txnlog.spark;

import static io.txnlog.spark.SparkVersion.linked;

import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Reads entries of segments: a batch for each, whose stored columns are the file's bytes, checked, and whose metadata
 * columns follow from the plan. Neighbours in a file are read at once.
 */
final class EntryReader implements DirectReader {
  private static final long WINDOW_BYTES = 8 << 20;
  private static final long GAP_BYTES = 64 << 10;
  private static final int FILES_MAX = 64;

  private final EntryRun run;
  private final StructType columns;
  private final Map<String, Field> stored = new HashMap<>();
  private final BufferAllocator allocator = linked(() -> SparkInternals.allocator());
  private final Map<Integer, SegmentFile> files = new HashMap<>();
  private ArrowBuf window;
  private int windowEnd;
  private long windowOffset;
  private int entry;

  /** Prepares to read; {@code stored} is an Arrow schema that has the stored ones of the columns. */
  EntryReader(EntryRun run, StructType columns, byte[] stored) throws IOException {
    this.run = run;
    this.columns = columns;
    for (Field field : SegmentFile.schema(stored).getFields()) {
      this.stored.put(field.getName(), field);
    }
  }

  @Override
  public long begin() {
    return run.get(entry, EntryRun.POSITION);
  }

  @Override
  public long done() {
    return 0;
  }

  /** Returns the next entry's rows. */
  @Override
  public ColumnarBatch next() throws IOException {
    if (entry == run.size()) {
      return null;
    }
    SegmentFile file = file((int) run.get(entry, EntryRun.FILE));
    long offset = run.get(entry, EntryRun.OFFSET);
    long length = run.get(entry, EntryRun.LENGTH);
    if (entry >= windowEnd) {
      read(file);
    }
    int rows = (int) run.get(entry, EntryRun.MESSAGES);
    file.load(window.slice(offset - windowOffset, length), (int) run.get(entry, EntryRun.CRC32C), rows);
    ColumnVector[] found = new ColumnVector[columns.length()];
    for (int i = 0; i < found.length; i++) {
      found[i] = column(file, columns.apply(i), rows);
    }
    entry++;
    return new ColumnarBatch(found, rows);
  }

  private SegmentFile file(int number) throws IOException {
    SegmentFile found = files.get(number);
    if (found == null) {
      if (files.size() == FILES_MAX) {
        closeFiles();
      }
      found = new SegmentFile(run.files()[number], allocator);
      files.put(number, found);
    }
    return found;
  }

  /** Reads the next entry and those that follow it closely in its file. */
  private void read(SegmentFile file) throws IOException {
    releaseWindow();
    windowOffset = run.get(entry, EntryRun.OFFSET);
    long end = end(entry);
    windowEnd = entry + 1;
    while (windowEnd < run.size() && run.get(windowEnd, EntryRun.FILE) == run.get(entry, EntryRun.FILE)
        && run.get(windowEnd, EntryRun.OFFSET) >= end && run.get(windowEnd, EntryRun.OFFSET) <= end + GAP_BYTES
        && end(windowEnd) - windowOffset <= WINDOW_BYTES) {
      end = end(windowEnd++);
    }
    int reach = windowEnd;
    windowEnd = 0; // until it is there
    window = allocator.buffer(end - windowOffset);
    file.read(window, windowOffset, end - windowOffset);
    windowEnd = reach;
  }

  private long end(int which) {
    return run.get(which, EntryRun.OFFSET) + run.get(which, EntryRun.LENGTH);
  }

  private ColumnVector column(SegmentFile file, StructField column, int rows) throws IOException {
    return switch (column.name()) {
      case "__topic" -> constant(column, rows, run.topic());
      case "__partition" -> constant(column, rows, run.partition());
      case "__ledger_id" -> constant(column, rows, run.get(entry, EntryRun.LEDGER_ID));
      case "__entry_id" -> constant(column, rows, run.get(entry, EntryRun.ENTRY_ID));
      case "__publish_time" -> constant(column, rows, run.get(entry, EntryRun.PUBLISH_TIME));
      case "__producer_name" -> constant(column, rows, run.text(entry, EntryRun.PRODUCER));
      case "__txn_id" -> constant(column, rows, run.text(entry, EntryRun.TXN));
      case "__txn_status" -> constant(column, rows, run.text(entry, EntryRun.STATUS));
      case "__batch_index" -> new CountingColumn(column.dataType(), 0);
      case "__sequence_id" -> new CountingColumn(column.dataType(), run.get(entry, EntryRun.BASE_SEQUENCE));
      default -> {
        ColumnVector found = file.column(stored.get(column.name()));
        yield found != null ? found : constant(column, rows, null);
      }
    };
  }

  private static ColumnVector constant(StructField column, int rows, Object value) {
    return linked(() -> SparkInternals.constant(rows, column.dataType(), value));
  }

  private void releaseWindow() {
    if (window != null) {
      window.close();
      window = null;
    }
  }

  private void closeFiles() {
    files.values().forEach(SegmentFile::close);
    files.clear();
  }

  @Override
  public void close() {
    closeFiles();
    releaseWindow();
    allocator.close();
  }
}
