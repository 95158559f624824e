"""Who may call the service, and how often: tokens, certificates, limits, the audit; nothing of the log itself."""
