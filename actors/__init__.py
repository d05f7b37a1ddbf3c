"""Agent shards: the single writers of their agents' interactions."""
