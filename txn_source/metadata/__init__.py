"""The metadata service: protobuf to model at its rim, transactions in SQL inside, and the client's stub of it."""
