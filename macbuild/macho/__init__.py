"""Read, edit, sign, verify and merge Mach-O files with the standard library only."""
