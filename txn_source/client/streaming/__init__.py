"""Reading topics batch by batch, without Spark."""
