"""What moves and removes copies: offloading, deletion, trimming, garbage."""
