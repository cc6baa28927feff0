"""Parse the command line, call the commands and show their results; decide nothing."""
