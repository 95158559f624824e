"""What a service tells over HTTP: metrics, and whether it is alive and ready."""
