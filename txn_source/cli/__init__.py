"""The command ``txnlog``: one module for each noun, tables for people and JSON for programs."""
