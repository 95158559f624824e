package io.txnlog.spark;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Collects what Spark knows of a read before it is planned: columns, and filters, which are for skipping only. */
final class TxnLogScanBuilder implements SupportsPushDownRequiredColumns, SupportsPushDownV2Filters {
  private final TxnLogTable table;
  private final Map<String, String> options;
  private StructType columns;
  private Predicate[] predicates = new Predicate[0];

  TxnLogScanBuilder(TxnLogTable table, Map<String, String> options) {
    this.table = table;
    this.options = options;
    this.columns = table.schema();
  }

  @Override
  public void pruneColumns(StructType required) {
    columns = required.isEmpty() ? table.cheapest() : required;
  }

  /** Keeps all filters for Spark, which evaluates each of them again: so skipping can't give wrong rows. */
  @Override
  public Predicate[] pushPredicates(Predicate[] given) {
    predicates = given;
    return given;
  }

  @Override
  public Predicate[] pushedPredicates() {
    return new Predicate[0];
  }

  @Override
  public Scan build() {
    QueryCut cut = null;
    if (!table.hasItsOwnEnd(options)) {
      cut = SparkInternals.ofQuery(QueryCut::new);
      cut.add(level(), table.topic());
    }
    return new TxnLogScan(cut);
  }

  private String level() {
    return new CaseInsensitiveStringMap(options).getOrDefault("isolationLevel", "read_committed");
  }

  private final class TxnLogScan implements Scan {
    private final QueryCut cut;

    TxnLogScan(QueryCut cut) {
      this.cut = cut;
    }

    @Override
    public StructType readSchema() {
      return columns;
    }

    @Override
    public ColumnarSupportMode columnarSupportMode() {
      return ColumnarSupportMode.UNSUPPORTED; // known without planning, which waits for the other scans of the query
    }

    @Override
    public String description() {
      return "txnlog " + table.topic() + " " + level() + " columns " + String.join(",", columns.fieldNames())
          + (predicates.length == 0 ? "" : " skipping by "
              + Arrays.stream(predicates).map(Object::toString).collect(Collectors.joining(" and ")));
    }

    @Override
    public Batch toBatch() {
      return new Batch() {
        private Batch planned;

        private synchronized Batch planned() {
          if (planned == null) {
            Map<String, String> all = new HashMap<>(options);
            if (cut != null) {
              all.put("endingOffsets", cut.end(table.log(), level()));
            }
            planned = python(all).toBatch();
          }
          return planned;
        }

        @Override
        public InputPartition[] planInputPartitions() {
          return planned().planInputPartitions();
        }

        @Override
        public PartitionReaderFactory createReaderFactory() {
          return planned().createReaderFactory();
        }
      };
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      return python(options).toMicroBatchStream(checkpoint);
    }

    private Scan python(Map<String, String> all) {
      CaseInsensitiveStringMap given = new CaseInsensitiveStringMap(all);
      return ((SupportsRead) SparkInternals.pythonTable(columns, given)).newScanBuilder(given).build();
    }
  }
}
