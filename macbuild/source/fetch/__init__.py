"""Fetch sources: sources as data, downloads, and the programs that know each kind of source."""
