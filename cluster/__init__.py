"""The composition root: command line, embedded servers, and the deployment on Ray."""
