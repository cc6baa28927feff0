"""Unpack hostile archives safely."""
