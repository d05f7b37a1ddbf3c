"""Benchmarks that others can run, each against a running instance or one that it starts itself."""
