"""The client's rim of the service: model values in and out, whichever transport carries the call."""
