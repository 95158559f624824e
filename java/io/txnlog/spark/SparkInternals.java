package io.txnlog.spark;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.function.Supplier;
import org.apache.spark.QueryContext;
import org.apache.spark.api.python.PythonUtils$;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.DataSource;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetTable;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.internal.connector.PredicateUtils;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;

/**
 * All that is used of Spark and isn't public: what can break with its next release is in this file. It is called by way
 * of {@link SparkVersion#linked}.
 */
final class SparkInternals {
  private static final Map<QueryPlanningTracker, Object> QUERIES = new WeakHashMap<>();

  private SparkInternals() {}

  /** Returns what Spark takes for a missing table and shows: of NoSuchTableException it shows no near names. */
  static Exception missing(String message) {
    return new AnalysisException(message, Option.empty(), Option.empty(), Option.empty(),
        Option.apply("TABLE_OR_VIEW_NOT_FOUND"), Map$.MODULE$.empty(), new QueryContext[0]);
  }

  /** Returns the Python source's scan of some columns. */
  static Scan pythonScan(StructType columns, Map<String, String> options) {
    CaseInsensitiveStringMap given = new CaseInsensitiveStringMap(options);
    return ((SupportsRead) pythonTable(columns, given)).newScanBuilder(given).build();
  }

  /** Returns the Python source's write. */
  static WriteBuilder pythonWrite(LogicalWriteInfo info) {
    return ((SupportsWrite) pythonTable(info.schema(), info.options())).newWriteBuilder(info);
  }

  private static Table pythonTable(StructType schema, CaseInsensitiveStringMap options) {
    try {
      return DataSource.lookupDataSourceV2("txnlog", SQLConf.get()).get()
          .getTable(schema, new Transform[0], options.asCaseSensitiveMap());
    } catch (Exception e) {
      if (e instanceof ClassNotFoundException) { // which Scala throws without declaring it
        throw new TxnLogException("UNAVAILABLE", "Spark's Python, " + python() + ", doesn't find txn-source. "
            + LogCalls.SET_PYTHON);
      }
      throw e;
    }
  }

  /** Returns Spark's own read of Parquet files: some of their columns, and no row groups that filters exclude. */
  static Batch parquet(
      List<String> locations, Map<String, String> options, StructType columns, List<Predicate> filters) {
    Map<String, String> all = new HashMap<>(options);
    all.put(DataSource.GLOB_PATHS_KEY(), "false");
    CaseInsensitiveStringMap given = new CaseInsensitiveStringMap(all);
    ParquetScanBuilder builder = new ParquetTable("txnlog", SparkSession.active(), given,
        CollectionConverters.asScala(locations).toSeq(), Option.apply(columns), ParquetFileFormat.class)
        .newScanBuilder(given);
    builder.pruneColumns(columns);
    builder.pushedDataFilters_$eq(PredicateUtils.toV1(filters.toArray(Predicate[]::new)));
    return builder.build().toBatch();
  }

  /** Returns a row of some values, as Spark has them inside. */
  static InternalRow row(Object[] values) {
    return new GenericInternalRow(values);
  }

  /** Returns what belongs to the query that this thread plans, made at the first call; each plan has its own. */
  @SuppressWarnings("unchecked")
  static <T> T ofQuery(Supplier<T> made) {
    Option<QueryPlanningTracker> query = QueryPlanningTracker.get();
    if (query.isEmpty()) {
      return made.get();
    }
    synchronized (QUERIES) {
      return (T) QUERIES.computeIfAbsent(query.get(), key -> made.get());
    }
  }

  /** Returns the Python that plans for Spark's Python sources. */
  static String python() {
    return PythonUtils$.MODULE$.defaultPythonExec();
  }
}
