"""Bring bytes from outside and open them safely: sources as data, downloads, providers, archives."""
