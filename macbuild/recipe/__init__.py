"""Recipes and the lock, as typed data."""
