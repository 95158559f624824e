package io.txnlog.spark;

import static io.txnlog.spark.SparkVersion.linked;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A topic as a table: its payload columns, and the metadata columns for whoever names them. */
class TxnLogTable implements SupportsRead, SupportsWrite, SupportsMetadataColumns {
  static final String METADATA_TABLE = "metadatatable";
  /** Options that say which log it is, and what its service is shown. */
  static final Set<String> TARGET = Set.of("path", "endpoint", "tlsca", "tlscert", "tlskey", "tokenfile");
  private static final Set<String> NAMED = Set.of("topic", "topics", "topicspattern", METADATA_TABLE);
  private static final Set<String> ENDS = Set.of("endingoffsets", "endingtimestamp", "asoftimestamp",
      "endingoffsetsbytimestamp", METADATA_TABLE);

  private final LogCalls log;
  private final JsonNode found;
  private final StructType schema;
  private final StructType metadata;
  private final Map<String, String> defaults;
  private final Map<String, String> options;

  /**
   * Takes what the log says of a topic.
   *
   * @param defaults the catalog's options for all queries, as far as they mean something for one.
   * @param given what the statement says of the table, such as its time.
   */
  TxnLogTable(LogCalls log, JsonNode found, Map<String, String> defaults, Map<String, String> given) {
    this.log = log;
    this.found = found;
    this.schema = (StructType) DataType.fromJson(found.get("schema").asText());
    this.metadata = (StructType) DataType.fromJson(found.get("metadata").asText());
    this.defaults = new CaseInsensitiveStringMap(defaults);
    this.options = new HashMap<>(new CaseInsensitiveStringMap(given));
    this.options.putAll(log.target());
    this.options.put("topic", topic());
  }

  LogCalls log() {
    return log;
  }

  String topic() {
    return found.get("topic").asText();
  }

  /** True if a column is one of the messages' own, not made by the reader. */
  boolean isStored(String column) {
    return schema.getFieldIndex(column).isDefined();
  }

  /** True if a read says itself where it ends, or has no messages. */
  static boolean hasItsOwnEnd(Map<String, String> options) {
    return ENDS.stream().anyMatch(name -> !options.getOrDefault(name, "latest").equalsIgnoreCase("latest"));
  }

  @Override
  public String name() {
    return TxnLogRead.ofMessages(options) ? topic() : topic() + "." + options.get(METADATA_TABLE);
  }

  @Override
  public StructType schema() {
    return schema;
  }

  @Override
  public Map<String, String> properties() {
    return LogCalls.texts(found.get("properties"));
  }

  @Override
  public MetadataColumn[] metadataColumns() {
    return Arrays.stream(metadata.fields()).map(field -> new Metadata(field.name(), field.dataType()))
        .toArray(MetadataColumn[]::new);
  }

  private record Metadata(String name, DataType dataType) implements MetadataColumn {}

  @Override
  public Set<TableCapability> capabilities() {
    if (!TxnLogRead.ofMessages(options)) {
      return EnumSet.of(TableCapability.BATCH_READ);
    }
    return EnumSet.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ,
        TableCapability.BATCH_WRITE, TableCapability.STREAMING_WRITE);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
    return new TxnLogScanBuilder(this, with(given));
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    CaseInsensitiveStringMap all = new CaseInsensitiveStringMap(with(info.options()));
    return linked(() -> SparkInternals.pythonWrite(
        info.schema(), all, new Write(info.queryId(), info.schema(), all)));
  }

  /** A write with the table's options, which don't reach the Python source otherwise. */
  private record Write(String queryId, StructType schema, CaseInsensitiveStringMap options)
      implements LogicalWriteInfo {}

  /** Tables of one topic with the same options are the same to Spark: so a cached one is found again. */
  @Override
  public boolean equals(Object other) {
    return other instanceof TxnLogTable table && schema.equals(table.schema) && options.equals(table.options)
        && defaults.equals(table.defaults) && log.target().equals(table.log.target());
  }

  @Override
  public int hashCode() {
    return Objects.hash(schema, options, log.target());
  }

  /**
   * Returns the options of a query. Defaults are told by name: which of them mean something for its kind, a batch or a
   * stream, a read or a write, the source knows; the others it leaves out instead of refusing them.
   */
  private Map<String, String> with(CaseInsensitiveStringMap given) {
    for (String name : given.keySet()) {
      if (NAMED.contains(name) || TARGET.contains(name)) {
        throw TxnLogException.refused("The option '" + name + "' is given, and the catalog's table " + topic()
            + " says itself what it is. Leave it out.");
      }
    }
    given.keySet().stream().filter(name -> name.startsWith("__")).findFirst().ifPresent(name -> {
      throw TxnLogException.refused("There is no option '" + name + "'. Leave it out.");
    });
    Map<String, String> all = new HashMap<>(defaults);
    all.putAll(options);
    all.putAll(given);
    all.put("catalogdefaults", defaults.keySet().stream()
        .filter(name -> !options.containsKey(name) && !given.containsKey(name)).collect(Collectors.joining(",")));
    return all;
  }
}
