package io.txnlog.spark;

import static io.txnlog.spark.SparkVersion.linked;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;

/** Rows that are known without reading a message: one with the number of messages, or so many without columns. */
record CountedRows(Object[] values, long times) implements Batch {
  private static final long ROWS_OF_A_TASK = 1L << 24;

  /** Returns one row, each of whose columns is a number. */
  static CountedRows one(long number, int columns) {
    Object[] values = new Object[columns];
    Arrays.fill(values, number);
    return new CountedRows(values, 1);
  }

  /** Returns rows without columns. */
  static CountedRows empty(long times) {
    return new CountedRows(new Object[0], times);
  }

  /** How often a task repeats the row. */
  record Task(long times) implements InputPartition {}

  /** Makes the rows where a task runs. */
  record Factory(Object[] values) implements PartitionReaderFactory {
    @Override
    public PartitionReader<InternalRow> createReader(InputPartition task) {
      InternalRow row = linked(() -> SparkInternals.row(values));
      return new PartitionReader<>() {
        private long left = ((Task) task).times();

        @Override
        public boolean next() {
          return left-- > 0;
        }

        @Override
        public InternalRow get() {
          return row;
        }

        @Override
        public void close() {}
      };
    }
  }

  @Override
  public InputPartition[] planInputPartitions() {
    int tasks = Math.toIntExact((times + ROWS_OF_A_TASK - 1) / ROWS_OF_A_TASK);
    InputPartition[] all = new InputPartition[tasks];
    for (int i = 0; i < tasks; i++) {
      all[i] = new Task(Math.min(ROWS_OF_A_TASK, times - i * ROWS_OF_A_TASK));
    }
    return all;
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new Factory(values);
  }
}
