"""Consumers and readers of subscriptions, and the calls for operators."""
