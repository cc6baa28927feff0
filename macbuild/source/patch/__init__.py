"""Find the places of edits in a tree of sources, apply them all or none, and revert them."""
