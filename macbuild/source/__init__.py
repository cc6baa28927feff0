"""Fetch, unpack, copy and edit sources."""
