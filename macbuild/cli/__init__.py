"""The command line: it parses, calls and shows, and decides nothing."""
