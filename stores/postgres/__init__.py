"""PostgreSQL: the truth about every stored memory."""
