package io.txnlog.spark;

import static io.txnlog.spark.SparkVersion.linked;

import java.util.EnumSet;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.stream.Stream;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The table that options name. Python parses the options and holds streams; the Python source writes. */
final class FormatTable implements SupportsRead, SupportsWrite {
  /** A process for all logs: the options of each call name the log. */
  static final LogCalls ANY_LOG = LogCalls.of(Map.of());

  private static final String KEPT = "txnlog.options"; // the key in a column's metadata for the options of a SQL table

  private final StructType schema;
  private final CaseInsensitiveStringMap properties;

  FormatTable(StructType schema, CaseInsensitiveStringMap properties) {
    this.schema = schema;
    this.properties = properties;
  }

  @Override
  public String name() {
    return "txnlog";
  }

  @Override
  public StructType schema() {
    return schema;
  }

  @Override
  public Set<TableCapability> capabilities() {
    return EnumSet.of(TableCapability.BATCH_READ, TableCapability.BATCH_WRITE, TableCapability.MICRO_BATCH_READ,
        TableCapability.STREAMING_WRITE, TableCapability.TRUNCATE); // Python refuses unsupported modes
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return new Builder(schema, options);
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return linked(() -> SparkInternals.pythonWrite(schema, properties, info));
  }

  private static final class Builder implements SupportsPushDownRequiredColumns {
    private final StructType all;
    private final CaseInsensitiveStringMap options;
    private StructType columns;

    Builder(StructType all, CaseInsensitiveStringMap options) {
      this.all = all;
      this.options = options;
      this.columns = all;
    }

    /** Keeps the required columns, at least one. A struct is read with all its fields. */
    @Override
    public void pruneColumns(StructType required) {
      columns = new StructType();
      for (String name : required.isEmpty() ? new String[] {all.fieldNames()[0]} : required.fieldNames()) {
        columns = columns.add(all.apply(name));
      }
    }

    @Override
    public Scan build() {
      return new Read(columns, withOptions(), options);
    }

    /** Returns the columns for Python, with the options of their SQL table in the metadata. */
    private StructType withOptions() {
      for (StructField field : all.fields()) {
        if (field.metadata().contains(KEPT)) {
          StructField[] told = columns.fields().clone();
          told[0] = new StructField(told[0].name(), told[0].dataType(), told[0].nullable(), new MetadataBuilder()
              .withMetadata(told[0].metadata()).putString(KEPT, field.metadata().getString(KEPT)).build());
          return new StructType(told);
        }
      }
      return columns;
    }
  }

  /** A read of some columns; {@code told} are the same columns with metadata for Python. */
  private static final class Read implements Scan, Batch {
    private final StructType columns;
    private final StructType told;
    private final CaseInsensitiveStringMap options;
    private volatile LaneStream stream;
    private Lane planned;

    Read(StructType columns, StructType told, CaseInsensitiveStringMap options) {
      this.columns = columns;
      this.told = told;
      this.options = options;
    }

    private boolean inRows() {
      return options.getOrDefault("lane", "").equalsIgnoreCase("python");
    }

    @Override
    public StructType readSchema() {
      return columns;
    }

    @Override
    public ColumnarSupportMode columnarSupportMode() {
      boolean rows = inRows() || (stream != null && stream.inRows());
      return rows ? ColumnarSupportMode.UNSUPPORTED : ColumnarSupportMode.SUPPORTED;
    }

    @Override
    public String description() {
      Lane lane = planned;
      return "txnlog" + (lane == null ? "" : "; " + lane.text());
    }

    @Override
    public Batch toBatch() {
      return inRows() ? python().toBatch() : this;
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      if (inRows()) {
        return python().toMicroBatchStream(checkpoint);
      }
      String topics = Stream.of("topic", "topics", "topicspattern").map(options::get).filter(Objects::nonNull)
          .findFirst().orElse("");
      stream = new LaneStream(topics, told, ANY_LOG, options);
      return stream;
    }

    private Scan python() {
      return linked(() -> SparkInternals.pythonScan(told, options));
    }

    @Override
    public InputPartition[] planInputPartitions() {
      return planned().planInputPartitions();
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      return planned().createReaderFactory();
    }

    private synchronized Lane planned() {
      if (planned == null) {
        Map<String, Object> wanted = Map.of("options", options, "schema", told.json());
        planned = Lane.planned(ANY_LOG, "formatPlan", wanted, columns);
      }
      return planned;
    }
  }
}
