"""What the tests of every backend share: a real tritonserver, its clients, model repositories, shared memory, load.

The conftest.py of a recipe puts the folder above this package on `sys.path`. Everything is in terms of numpy.
"""

import pytest

pytest.register_assert_rewrite("backend_testing.crowd", "backend_testing.memory")
