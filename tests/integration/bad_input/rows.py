"""The table of bad inputs: what is given, what is run, and what macbuild must answer. A row of the table is a test."""

from __future__ import annotations

from tests.integration.bad_input.command_rows import (
    ARCHIVE_ROWS,
    COMMAND_ROWS,
    DISK_ROWS,
    FILE_ROWS,
    FOLDER_ROWS,
    LOCALE_ROWS,
    SERVER_ROWS,
)
from tests.integration.bad_input.project_rows import EDIT_ROWS, LOCK_ROWS, RECIPE_ROWS, SETTINGS_ROWS
from tests.integration.bad_input.row import Row

__all__ = ["ROWS", "Row"]

ROWS: list[Row] = [
    *RECIPE_ROWS,
    *LOCK_ROWS,
    *SETTINGS_ROWS,
    *EDIT_ROWS,
    *COMMAND_ROWS,
    *FILE_ROWS,
    *ARCHIVE_ROWS,
    *SERVER_ROWS,
    *DISK_ROWS,
    *LOCALE_ROWS,
    *FOLDER_ROWS,
]
