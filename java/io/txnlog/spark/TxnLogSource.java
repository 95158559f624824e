package io.txnlog.spark;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The format {@code txnlog}: with this jar Spark uses it instead of the Python source of that name. */
public final class TxnLogSource implements TableProvider, DataSourceRegister {
  @Override
  public String shortName() {
    return "txnlog";
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    SparkVersion.check();
    return (StructType) DataType.fromJson(FormatTable.ANY_LOG.ask("formatSchema", Map.of("options", options)).asText());
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    SparkVersion.check();
    return new FormatTable(schema, new CaseInsensitiveStringMap(properties));
  }

  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }
}
