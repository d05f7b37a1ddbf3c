"""The HTTP API and its deployment on Ray Serve."""
