# The versions in the stage: python_headers::python310 and so on.
set(python_headers_VERSIONS 3.10 3.11 3.12 3.13 3.14)
