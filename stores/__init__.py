"""Edges: PostgreSQL, Valkey, embedders and model clients. Drivers' errors are translated here, once."""
