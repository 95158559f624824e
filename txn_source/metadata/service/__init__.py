"""The calls of the service, and what they are reached by: gRPC, or directly."""
