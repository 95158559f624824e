"""Protobuf to model and back, what a request may carry, and errors on the wire: what both rims share."""
