"""Do what each command is for, without printing."""
