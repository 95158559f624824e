"""The log's values and rules, pure: no gRPC, Spark, SQL, file, clock or randomness.

Every module is one noun of the glossary; read the file names and you know the system.
"""
