package io.txnlog.spark;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
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
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.execution.datasources.DataSource;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetTable;
import org.apache.spark.sql.internal.connector.PredicateUtils;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;

/** All that is used of Spark and isn't public: what can break with its next release is in this file. */
final class SparkInternals {
  /** What to do about a Python that isn't the right one. */
  static final String SET_PYTHON =
      "Set PYSPARK_PYTHON, where Spark's driver is started, to the Python that has txn-source.";

  private static final Map<QueryPlanningTracker, Object> QUERIES = new WeakHashMap<>();

  private SparkInternals() {}

  /** Refuses a Spark of another minor version than the one that this jar was compiled with. */
  static void checkVersion() {
    if (!minor(compiled()).equals(minor(used()))) {
      throw otherSpark("");
    }
  }

  /** Returns what uses Spark's internals, or says which Spark they are of, if this one's are others. */
  private static <T> T linked(Supplier<T> use) {
    try {
      return use.get();
    } catch (LinkageError e) {
      throw otherSpark(" (" + e + ")");
    }
  }

  private static String used() {
    return org.apache.spark.package$.MODULE$.SPARK_VERSION();
  }

  private static String compiled() {
    try (InputStream resource = SparkInternals.class.getResourceAsStream("spark-version")) {
      return new String(resource.readAllBytes(), StandardCharsets.UTF_8);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static TxnLogException otherSpark(String why) {
    return new TxnLogException("NO_JAR", "[TXNLOG_NO_JAR] The catalog's jar is for Spark " + compiled()
        + ", and this is Spark " + used() + why + ". Take the jar that `txnlog spark-jar` names where this Spark is"
        + " installed.");
  }

  private static String minor(String version) {
    return String.join(".", Arrays.asList(version.split("\\.")).subList(0, 2));
  }

  /**
   * Throws what Spark takes for a missing table, and shows: of NoSuchTableException it shows nothing, so names that are
   * near would be lost.
   */
  static RuntimeException missing(String message) {
    throw TxnLogException.<RuntimeException>undeclared(new AnalysisException(message, Option.empty(), Option.empty(),
        Option.empty(), Option.apply("TABLE_OR_VIEW_NOT_FOUND"), Map$.MODULE$.empty(), new QueryContext[0]));
  }

  /** Returns the table that the Python source makes, with the columns that are to be read or written. */
  static Table pythonTable(StructType schema, CaseInsensitiveStringMap options) {
    try {
      TableProvider source = linked(() -> DataSource.lookupDataSourceV2("txnlog", SQLConf.get()).get());
      return source.getTable(schema, new Transform[0], options.asCaseSensitiveMap());
    } catch (Exception e) {
      if (e instanceof ClassNotFoundException) { // which Scala throws without declaring it
        throw new TxnLogException("UNAVAILABLE", "[TXNLOG_UNAVAILABLE] Spark's Python, " + python()
            + ", doesn't find txn-source. " + SET_PYTHON);
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
    return linked(() -> {
      ParquetScanBuilder builder = new ParquetTable("txnlog", SparkSession.active(), given,
          CollectionConverters.asScala(locations).toSeq(), Option.apply(columns), ParquetFileFormat.class)
          .newScanBuilder(given);
      builder.pruneColumns(columns);
      builder.pushedDataFilters_$eq(PredicateUtils.toV1(filters.toArray(Predicate[]::new)));
      return builder.build().toBatch();
    });
  }

  /** Returns a row of some values, as Spark has them inside. */
  static InternalRow row(Object[] values) {
    return new GenericInternalRow(values);
  }

  /** Returns what belongs to the query that this thread plans, made at the first call; each plan has its own. */
  @SuppressWarnings("unchecked")
  static <T> T ofQuery(Supplier<T> made) {
    Option<QueryPlanningTracker> query = linked(QueryPlanningTracker::get);
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
