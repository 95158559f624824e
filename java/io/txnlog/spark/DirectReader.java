package io.txnlog.spark;

import java.io.IOException;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Reads a part of a task straight from files. After an exception Python reads what wasn't handed out. */
interface DirectReader extends AutoCloseable {
  /** Returns the next rows, valid until the next call; null behind the last ones. */
  ColumnarBatch next() throws IOException;

  /** Returns the position of the first entry that wasn't handed out; -1 if {@link #done} counts from the start. */
  long begin();

  /** Returns how many rows of the part were handed out, where {@link #begin} doesn't say it. */
  long done();

  @Override
  void close();
}
