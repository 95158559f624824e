package io.txnlog.spark;

import static io.txnlog.spark.SparkVersion.linked;
import static io.txnlog.spark.TxnLogException.refused;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableWritePrivilege;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A log as a catalog: tenants and their namespaces, and topics as tables. */
public final class TxnLogCatalog implements StagingTableCatalog, SupportsNamespaces {
  private static final Set<String> OWN = Set.of("allowdrop");

  private String name;
  private CaseInsensitiveStringMap options;
  private LogCalls log;
  private volatile boolean checked;

  @Override
  public void initialize(String given, CaseInsensitiveStringMap all) {
    SparkVersion.check();
    name = given;
    options = all;
    boolean path = all.containsKey("path");
    if (path == all.containsKey("endpoint")) {
      throw refused("The catalog " + given + " has " + (path ? "both a path and an endpoint." : "neither a path nor an"
          + " endpoint.") + " Set spark.sql.catalog." + given
          + ".path to the folder of an embedded log, or .endpoint to a service's host:port.");
    }
    Map<String, String> target = new HashMap<>();
    TxnLogTable.TARGET.stream().filter(all::containsKey).forEach(each -> target.put(each, all.get(each)));
    log = LogCalls.of(target);
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public String[] defaultNamespace() {
    return new String[] {"public"};
  }

  /** Returns the namespaces, each as a tenant and a name in it. */
  private List<String[]> namespaces() {
    List<String[]> all = new ArrayList<>();
    ask("namespaces", Map.of()).forEach(each -> all.add(new String[] {each.get(0).asText(), each.get(1).asText()}));
    return all;
  }

  @Override
  public String[][] listNamespaces() {
    return namespaces().stream().map(each -> each[0]).distinct().map(tenant -> new String[] {tenant})
        .toArray(String[][]::new);
  }

  @Override
  public String[][] listNamespaces(String[] within) throws NoSuchNamespaceException {
    if (within.length == 0) {
      return listNamespaces();
    }
    loadNamespaceMetadata(within);
    return namespaces().stream().filter(each -> within.length == 1 && each[0].equals(within[0]))
        .toArray(String[][]::new);
  }

  @Override
  public boolean namespaceExists(String[] namespace) {
    return namespace.length == 0
        || namespaces().stream().anyMatch(each -> Arrays.equals(namespace, Arrays.copyOf(each, namespace.length)));
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
    if (!namespaceExists(namespace)) {
      throw new NoSuchNamespaceException(namespace);
    }
    return Map.of();
  }

  @Override
  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    List<Identifier> found = new ArrayList<>();
    ask("topics", Map.of("namespace", namespace))
        .forEach(topic -> found.add(Identifier.of(namespace, topic.asText())));
    if (found.isEmpty()) {
      loadNamespaceMetadata(namespace);
    }
    return found.toArray(Identifier[]::new);
  }

  @Override
  public boolean tableExists(Identifier of) {
    return found(of).has("topic");
  }

  @Override
  public Table loadTable(Identifier of) throws NoSuchTableException {
    return load(of, Map.of());
  }

  /** Returns a table to be written to, which statements that make it look for too: so names like it aren't told. */
  @Override
  public Table loadTable(Identifier of, Set<TableWritePrivilege> privileges) throws NoSuchTableException {
    if (found(of).has("near")) {
      throw new NoSuchTableException(of);
    }
    return load(of, Map.of());
  }

  @Override
  public Table loadTable(Identifier of, long micros) throws NoSuchTableException {
    return load(of, Map.of("asOfTimestamp", ask("asOf", of, "micros", micros).asText()));
  }

  @Override
  public Table loadTable(Identifier of, String version) throws NoSuchTableException {
    return load(of, Map.of("endingOffsets", ask("version", of, "version", version).asText()));
  }

  private Table load(Identifier of, Map<String, String> given) throws NoSuchTableException {
    JsonNode found = found(of);
    if (!found.has("topic")) {
      String why = found.path("refused").asText(found.path("near").asText());
      if (why.isEmpty()) {
        throw new NoSuchTableException(of);
      }
      throw TxnLogException.<RuntimeException>undeclared(linked(() -> SparkInternals.missing(why)));
    }
    if (found.has("metadataTable")) {
      Map<String, String> all = new HashMap<>(given);
      all.put(TxnLogTable.METADATA_TABLE, found.get("metadataTable").asText());
      return new TxnLogTable(log, found, defaults(), all);
    }
    return new TxnLogTable(log, found, defaults(), given);
  }

  private JsonNode found(Identifier of) {
    return ask("table", of);
  }

  /** Asks the log, and before all else whether it knows the catalog's options. */
  private JsonNode ask(String call, Map<String, ?> arguments) {
    if (!checked) {
      log.ask("checkOptions", Map.of("options", options.asCaseSensitiveMap()));
      checked = true;
    }
    return log.ask(call, arguments);
  }

  /** Asks about a topic; {@code more} are names and values of other arguments. */
  private JsonNode ask(String call, Identifier of, Object... more) {
    Map<String, Object> arguments = new HashMap<>(Map.of("namespace", of.namespace(), "name", of.name()));
    for (int i = 0; i < more.length; i += 2) {
      arguments.put((String) more[i], more[i + 1]);
    }
    return ask(call, arguments);
  }

  /** Returns why a change can't be; a log that is only read says that itself. */
  private TxnLogException unchanged(String why) {
    ask("change", Map.of());
    return refused(why);
  }

  /** Returns the options for queries. */
  private Map<String, String> defaults() {
    Map<String, String> defaults = new HashMap<>(options.asCaseSensitiveMap());
    defaults.keySet().removeIf(each -> OWN.contains(each.toLowerCase(Locale.ROOT))
        || TxnLogTable.TARGET.contains(each.toLowerCase(Locale.ROOT)));
    return defaults;
  }

  @Override
  public Table createTable(Identifier of, Column[] columns, Transform[] partitions, Map<String, String> properties)
      throws TableAlreadyExistsException {
    create(of, columns, partitions, properties);
    return new TxnLogTable(log, found(of), defaults(), Map.of());
  }

  @Override
  public StagedTable stageCreate(
      Identifier of, Column[] columns, Transform[] partitions, Map<String, String> properties)
      throws TableAlreadyExistsException {
    create(of, columns, partitions, properties);
    return new StagedTopic(log, found(of), defaults(), of);
  }

  @Override
  public StagedTable stageReplace(
      Identifier of, Column[] columns, Transform[] partitions, Map<String, String> properties) {
    throw unchanged("A topic is never replaced: readers hold positions in it."
        + " Use CREATE TABLE for a new one, or INSERT INTO.");
  }

  @Override
  public StagedTable stageCreateOrReplace(
      Identifier of, Column[] columns, Transform[] partitions, Map<String, String> properties) {
    return stageReplace(of, columns, partitions, properties);
  }

  private void create(Identifier of, Column[] columns, Transform[] partitions, Map<String, String> properties)
      throws TableAlreadyExistsException {
    if (partitions.length > 0) {
      throw refused("A topic isn't partitioned by columns. Leave out PARTITIONED BY and CLUSTERED BY;"
          + " TBLPROPERTIES('partitions' = '8') makes partitions, and keys are routed to them.");
    }
    Map<String, String> given = new HashMap<>(properties);
    // toTable names it unasked.
    given.remove(PROP_PROVIDER, SparkSession.active().conf().get("spark.sql.sources.default"));
    try {
      ask("create", of, "schema", CatalogV2Util.v2ColumnsToStructType(columns).json(), "properties", given);
    } catch (TxnLogException e) {
      if (e.code.equals("TOPIC_EXISTS")) {
        throw new TableAlreadyExistsException(of);
      }
      throw e;
    }
  }

  @Override
  public Table alterTable(Identifier of, TableChange... changes) throws NoSuchTableException {
    Map<String, String> properties = new HashMap<>();
    for (TableChange change : changes) {
      if (change instanceof TableChange.SetProperty set) {
        properties.put(set.property(), set.value());
      } else if (change instanceof TableChange.RemoveProperty removed) {
        properties.put(removed.property(), null);
      } else {
        throw unchanged("A topic's columns can't be changed: its messages stay as they are."
            + " Make a new topic; SET TBLPROPERTIES changes policies.");
      }
    }
    ask("set", of, "properties", properties);
    return load(of, Map.of());
  }

  @Override
  public boolean dropTable(Identifier of) {
    if (!options.getBoolean("allowDrop", false)) {
      throw unchanged("DROP TABLE would delete topic " + String.join(".", of.namespace()) + "." + of.name()
          + " with all its messages. Set spark.sql.catalog." + name + ".allowDrop to true if it is meant.");
    }
    return ask("drop", of).asBoolean();
  }

  @Override
  public void renameTable(Identifier from, Identifier to) {
    throw unchanged("A topic can't be renamed: producers and positions know it by its name. Make a new one.");
  }

  @Override
  public void createNamespace(String[] namespace, Map<String, String> properties) {
    throw unchanged("A namespace is there as soon as it has a topic. Make a topic in it.");
  }

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes) {
    throw unchanged("Namespaces have no properties here. Set policies with `txnlog namespaces set-policies`.");
  }

  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade) {
    throw refused("A namespace goes with its last topic. Drop its topics.");
  }
}
