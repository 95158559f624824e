package io.txnlog.spark;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** A column of whole numbers, each one more than the one before. */
final class CountingColumn extends ColumnVector {
  private final long first;

  CountingColumn(DataType type, long first) {
    super(type);
    this.first = first;
  }

  @Override public int getInt(int row) { return (int) (first + row); }

  @Override public long getLong(int row) { return first + row; }

  @Override public boolean isNullAt(int row) { return false; }

  @Override public boolean hasNull() { return false; }

  @Override public int numNulls() { return 0; }

  @Override public void close() {}

  // No column of numbers is asked for anything else.

  @Override public boolean getBoolean(int row) { throw new UnsupportedOperationException(); }

  @Override public byte getByte(int row) { throw new UnsupportedOperationException(); }

  @Override public short getShort(int row) { throw new UnsupportedOperationException(); }

  @Override public float getFloat(int row) { throw new UnsupportedOperationException(); }

  @Override public double getDouble(int row) { throw new UnsupportedOperationException(); }

  @Override public ColumnarArray getArray(int row) { throw new UnsupportedOperationException(); }

  @Override public ColumnarMap getMap(int row) { throw new UnsupportedOperationException(); }

  @Override public Decimal getDecimal(int row, int precision, int scale) { throw new UnsupportedOperationException(); }

  @Override public UTF8String getUTF8String(int row) { throw new UnsupportedOperationException(); }

  @Override public byte[] getBinary(int row) { throw new UnsupportedOperationException(); }

  @Override public ColumnVector getChild(int ordinal) { throw new UnsupportedOperationException(); }
}
