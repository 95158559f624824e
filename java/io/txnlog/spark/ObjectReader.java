package io.txnlog.spark;

import static io.txnlog.spark.SparkVersion.linked;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.zip.CRC32C;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Reads row groups of an object with Spark's Parquet reader. All bytes that it will read are checked first: Parquet's
 * own checksums don't cover page headers.
 */
final class ObjectReader implements DirectReader {
  private static final int STEP_BYTES = 1 << 20;

  private final ObjectRun run;
  private final StructType columns;
  private final PartitionReaderFactory parquet;
  private PartitionReader<ColumnarBatch> reader;
  private long done;

  /** Prepares to read; {@code parquet} reads the columns but {@code __topic}, in their order. */
  ObjectReader(ObjectRun run, StructType columns, PartitionReaderFactory parquet) {
    this.run = run;
    this.columns = columns;
    this.parquet = parquet;
  }

  @Override
  public ColumnarBatch next() throws IOException {
    if (reader == null) {
      check();
      reader = parquet.createColumnarReader(linked(() -> SparkInternals.filePartition(run)));
    }
    if (!reader.next()) {
      if (done < run.rows()) {
        throw new IOException(run.path() + " has " + done + " rows where " + run.rows() + " were planned");
      }
      return null;
    }
    ColumnarBatch found = reader.get();
    if (done + found.numRows() > run.rows()) {
      throw new IOException(run.path() + " has more than the " + run.rows() + " rows that were planned");
    }
    ColumnVector[] all = new ColumnVector[columns.length()];
    int stored = 0;
    for (int i = 0; i < all.length; i++) {
      all[i] = columns.apply(i).name().equals("__topic")
          ? linked(() -> SparkInternals.constant(found.numRows(), DataTypes.StringType, run.topic()))
          : found.column(stored++);
    }
    done += found.numRows();
    return new ColumnarBatch(all, found.numRows());
  }

  private void check() throws IOException {
    ByteBuffer bytes = ByteBuffer.allocateDirect(STEP_BYTES);
    try (FileChannel file = FileChannel.open(Path.of(run.path()), StandardOpenOption.READ)) {
      if (file.size() != run.size()) {
        throw new IOException(run.path() + " has " + file.size() + " bytes where " + run.size() + " were written");
      }
      for (int i = 0; i < run.checks().length; i += 3) {
        check(file, bytes, run.checks()[i], run.checks()[i + 1], (int) run.checks()[i + 2]);
      }
    }
  }

  private void check(FileChannel file, ByteBuffer bytes, long offset, long length, int crc32c) throws IOException {
    CRC32C found = new CRC32C();
    for (long at = offset; at < offset + length; ) {
      bytes.clear().limit((int) Math.min(bytes.capacity(), offset + length - at));
      int got = file.read(bytes, at);
      if (got < 0) {
        throw new EOFException(run.path() + " ends at byte " + at);
      }
      at += got;
      found.update(bytes.flip());
    }
    if ((int) found.getValue() != crc32c) {
      throw new IOException(String.format("bytes %d to %d of %s have checksum %08x where %08x was written (CRC-32C)",
          offset, offset + length, run.path(), (int) found.getValue(), crc32c));
    }
  }

  @Override
  public long begin() {
    return -1;
  }

  @Override
  public long done() {
    return done;
  }

  @Override
  public void close() {
    if (reader != null) {
      try {
        reader.close();
      } catch (IOException e) { // it was only read
      }
    }
  }
}
