"""Compare the headers that a program was compiled with to this Python, if it is of the same version."""

import subprocess
import sys
import sysconfig

program, version = sys.argv[1:]
first, *rest = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
if first != version:
    sys.exit(f"the headers are of Python {first}, not {version}")
if sys.version_info[:2] == tuple(int(part) for part in version.split(".")):
    numbers = {name: int(number) for name, number in (line.split() for line in rest)}
    here = {
        "object": object.__basicsize__,
        "tuple": tuple.__basicsize__,
        "heaptype": type.__basicsize__,
        "bytes": bytes.__basicsize__,
    }
    if numbers != here:
        sys.exit(f"the headers say {numbers}, this Python {here}")
    if sysconfig.get_config_var("Py_DEBUG") or sysconfig.get_config_var("Py_GIL_DISABLED"):
        sys.exit("this Python has another ABI")
