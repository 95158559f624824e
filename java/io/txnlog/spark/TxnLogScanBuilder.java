package io.txnlog.spark;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Collects what Spark knows of a read before it is planned: columns, a limit, and filters, for skipping only. */
final class TxnLogScanBuilder implements SupportsPushDownRequiredColumns, SupportsPushDownV2Filters,
    SupportsPushDownLimit, SupportsPushDownAggregates {
  private final TxnLogTable table;
  private final Map<String, String> options;
  private StructType columns;
  private Predicate[] pushed = new Predicate[0];
  private int limit = TxnLogRead.NO_LIMIT;
  private boolean counts;

  TxnLogScanBuilder(TxnLogTable table, Map<String, String> options) {
    this.table = table;
    this.options = options;
    this.columns = table.schema();
  }

  /** Takes the columns that are wanted; of a struct all parts are read, whichever of them are. */
  @Override
  public void pruneColumns(StructType required) {
    columns = new StructType();
    if (required.isEmpty() && !TxnLogRead.ofMessages(options)) {
      columns = columns.add(table.schema().apply(0)); // it must be read to know how many rows it has
    }
    for (StructField field : required.fields()) {
      columns = columns.add(table.isStored(field.name()) ? table.schema().apply(field.name()) : field);
    }
  }

  /** Keeps all filters for Spark, which evaluates each of them again: so skipping can't give wrong rows. */
  @Override
  public Predicate[] pushPredicates(Predicate[] given) {
    pushed = Arrays.stream(given).filter(each -> PushedFilters.of(each) != null).toArray(Predicate[]::new);
    return given;
  }

  @Override
  public Predicate[] pushedPredicates() {
    return pushed;
  }

  /** Takes a limit as one that Spark applies again: tasks can't know what others have read. */
  @Override
  public boolean pushLimit(int given) {
    limit = given;
    return true;
  }

  @Override
  public boolean isPartiallyPushed() {
    return true;
  }

  @Override
  public boolean supportCompletePushDown(Aggregation aggregation) {
    return TxnLogRead.ofMessages(options) && counts(aggregation);
  }

  /** Takes the count of all rows, which the log's metadata knows; Spark asks only where there are no filters. */
  @Override
  public boolean pushAggregation(Aggregation aggregation) {
    counts = TxnLogRead.ofMessages(options) && counts(aggregation);
    if (counts) {
      columns = new StructType();
      for (int i = 0; i < aggregation.aggregateExpressions().length; i++) {
        columns = columns.add("count(*)" + (i == 0 ? "" : " " + i), DataTypes.LongType, false);
      }
    }
    return counts;
  }

  private static boolean counts(Aggregation aggregation) {
    return aggregation.groupByExpressions().length == 0 && aggregation.aggregateExpressions().length > 0
        && Arrays.stream(aggregation.aggregateExpressions()).allMatch(each -> each instanceof CountStar);
  }

  @Override
  public Scan build() {
    QueryCut cut = QueryCut.of(table, options);
    return new TxnLogScan(new TxnLogRead(table, options, columns, List.of(pushed), limit, counts, cut));
  }
}
