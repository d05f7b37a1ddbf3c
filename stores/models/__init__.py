"""Models that ship inside packages, behind the ports of ``memory.ports``."""
