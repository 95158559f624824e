"""The Spark connector: options and schema, thin over the client's planning and reading."""
