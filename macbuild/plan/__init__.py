"""Which steps lead to what was asked for, and the key of each."""
