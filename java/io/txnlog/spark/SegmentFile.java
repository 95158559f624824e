package io.txnlog.spark;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32C;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.arrow.vector.BaseLargeVariableWidthVector;
import org.apache.arrow.vector.BaseVariableWidthVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorLoader;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.complex.LargeListVector;
import org.apache.arrow.vector.complex.ListVector;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.arrow.vector.util.ValueVectorUtility;

/** An open segment, an Arrow stream, and the entry of it that was loaded last. */
final class SegmentFile implements AutoCloseable {
  private static final int PREFIX = 8;
  private static final int SCHEMA_BYTES_MAX = 16 << 20;

  private final String path;
  private final FileChannel channel;
  private final byte[] header;
  private final VectorSchemaRoot root;
  private final VectorLoader loader;
  private final Map<String, KeptColumn> columns = new HashMap<>();

  SegmentFile(String path, BufferAllocator allocator) throws IOException {
    this.path = path;
    this.channel = FileChannel.open(Path.of(path), StandardOpenOption.READ);
    try {
      ByteBuffer prefix = ByteBuffer.allocate(PREFIX);
      fill(prefix, 0);
      int length = prefix.order(ByteOrder.LITTLE_ENDIAN).getInt(4);
      if (length <= 0 || length > SCHEMA_BYTES_MAX) {
        throw new IOException(path + " has no schema at its start");
      }
      ByteBuffer whole = ByteBuffer.allocate(PREFIX + length);
      fill(whole, 0);
      this.header = whole.array();
      this.root = VectorSchemaRoot.create(schema(header), allocator);
      this.loader = new VectorLoader(root);
    } catch (IOException | RuntimeException e) {
      channel.close();
      throw e;
    }
  }

  /** Returns the schema that an Arrow message has. */
  static Schema schema(byte[] message) throws IOException {
    if (message.length < PREFIX) {
      return new Schema(List.of());
    }
    ByteBuffer bytes = ByteBuffer.wrap(message).order(ByteOrder.LITTLE_ENDIAN).position(PREFIX);
    Message found = Message.getRootAsMessage(bytes.slice().order(ByteOrder.LITTLE_ENDIAN));
    if (found.headerType() != MessageHeader.Schema) {
      throw new IOException("not a schema");
    }
    return MessageSerializer.deserializeSchema(found);
  }

  /** Fills a buffer with bytes of the file. */
  void read(ArrowBuf into, long offset, long length) throws IOException {
    fill(into.nioBuffer(0, Math.toIntExact(length)), offset);
  }

  private void fill(ByteBuffer into, long offset) throws IOException {
    while (into.hasRemaining()) {
      int got = channel.read(into, offset + into.position());
      if (got < 0) {
        throw new EOFException(path + " ends at byte " + (offset + into.position()));
      }
    }
  }

  /** Loads an entry, after a look at its checksum, which is of the schema's message, too, and at its sizes. */
  void load(ArrowBuf entry, int crc32c, int rows) throws IOException {
    int length = Math.toIntExact(entry.capacity());
    ByteBuffer bytes = entry.nioBuffer(0, length).order(ByteOrder.LITTLE_ENDIAN);
    CRC32C found = new CRC32C();
    found.update(header);
    found.update(bytes.duplicate());
    if ((int) found.getValue() != crc32c) {
      throw new IOException(String.format("%s has an entry with checksum %08x where %08x was written (CRC-32C)",
          path, (int) found.getValue(), crc32c));
    }
    int metadata = bytes.getInt(4);
    if (metadata <= 0 || metadata > length - PREFIX) {
      throw new IOException(path + " has an entry without a message");
    }
    Message message = Message.getRootAsMessage(bytes.slice(PREFIX, metadata).order(ByteOrder.LITTLE_ENDIAN));
    ArrowBuf body = entry.slice(PREFIX + metadata, length - PREFIX - metadata);
    try (ArrowRecordBatch batch = batch(message, body)) {
      if (batch.getLength() != rows) {
        throw new IOException(path + " has an entry of " + batch.getLength() + " rows where " + rows + " were written");
      }
      loader.load(batch);
    }
    for (String name : columns.keySet()) {
      check(root.getVector(name));
    }
  }

  /** Throws if a column points beyond its data: its values would be foreign memory. */
  private void check(FieldVector column) throws IOException {
    ValueVectorUtility.validate(column); // the sizes of buffers
    int rows = column.getValueCount();
    if (rows > 0 && column instanceof BaseVariableWidthVector values) {
      check(values.getOffsetBuffer(), Integer.BYTES, rows, values.getDataBuffer().capacity());
    } else if (rows > 0 && column instanceof BaseLargeVariableWidthVector values) {
      check(values.getOffsetBuffer(), Long.BYTES, rows, values.getDataBuffer().capacity());
    } else if (rows > 0 && column instanceof ListVector lists) { // and maps
      check(lists.getOffsetBuffer(), Integer.BYTES, rows, lists.getDataVector().getValueCount());
    } else if (rows > 0 && column instanceof LargeListVector lists) {
      check(lists.getOffsetBuffer(), Long.BYTES, rows, lists.getDataVector().getValueCount());
    }
    for (FieldVector part : column.getChildrenFromFields()) {
      check(part);
    }
  }

  private void check(ArrowBuf offsets, int width, int rows, long size) throws IOException {
    long last = 0;
    long at = offsets.memoryAddress();
    for (long end = at + (long) width * rows; at <= end; at += width) {
      long next = width == Integer.BYTES ? MemoryUtil.getInt(at) : MemoryUtil.getLong(at);
      if (next < last || next > size) {
        throw new IOException(path + " has an entry that points beyond its data");
      }
      last = next;
    }
  }

  private static ArrowRecordBatch batch(Message message, ArrowBuf body) throws IOException {
    body.getReferenceManager().retain(); // a batch that is read lets go of its body once
    try {
      return MessageSerializer.deserializeRecordBatch(message, body);
    } catch (IOException | RuntimeException e) {
      body.getReferenceManager().release();
      throw e;
    }
  }

  /** Returns a column of the entry that is loaded; null if the file doesn't have it. */
  KeptColumn column(Field wanted) throws IOException {
    KeptColumn known = columns.get(wanted.getName());
    if (known != null) {
      return known;
    }
    Field mine = root.getSchema().getFields().stream().filter(each -> each.getName().equals(wanted.getName()))
        .findFirst().orElse(null);
    if (mine == null) {
      return null;
    }
    if (!alike(mine, wanted)) {
      throw new IOException(path + " has " + mine + " where the topic has " + wanted);
    }
    FieldVector vector = root.getVector(wanted.getName());
    check(vector);
    KeptColumn column = new KeptColumn(vector);
    columns.put(wanted.getName(), column);
    return column;
  }

  private static boolean alike(Field mine, Field wanted) {
    List<Field> parts = mine.getChildren();
    if (!mine.getType().equals(wanted.getType()) || parts.size() != wanted.getChildren().size()) {
      return false;
    }
    for (int i = 0; i < parts.size(); i++) {
      if (!alike(parts.get(i), wanted.getChildren().get(i))) {
        return false;
      }
    }
    return true;
  }

  @Override
  public void close() {
    root.close();
    try {
      channel.close();
    } catch (IOException e) { // it was only read
    }
  }
}
