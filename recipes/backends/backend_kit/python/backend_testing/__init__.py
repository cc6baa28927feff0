"""Share code among the tests of all backends: a real tritonserver, clients, model repositories, shared memory, load.

The conftest.py of a recipe puts the folder above this package on `sys.path`. All data is numpy arrays.
"""

import pytest

pytest.register_assert_rewrite("backend_testing.crowd", "backend_testing.memory")
