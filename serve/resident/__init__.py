"""Resident indexes: the memories of active agents' users, ranked without leaving the process."""
