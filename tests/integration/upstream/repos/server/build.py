"""Synthetic upstream: what the real build.py assumes of the machine, made for the tests of macbuild.

    build.py --build-dir B --install-dir I [--dryrun]

Writes the commands of a build without a container to B/cmake_build, a script for bash, and runs it.
"""

import argparse
import pathlib
import platform
import subprocess


def commands(source: pathlib.Path, build: pathlib.Path, install: pathlib.Path) -> list[str]:
    """Return the commands: the super-build, then what of it is installed."""
    parts = ["http", "ensemble", "stats", "logging", "metrics"]
    flags = [f"-DTRITON_ENABLE_{part.upper()}:BOOL=ON" for part in parts]
    # Everything that is neither Windows nor RHEL is taken for this.
    system = {"windows": "windows", "rhel": "rhel"}.get(platform.system().lower(), "linux")
    made = build / "tritonserver/install"
    lines = [f"# {system}", "set -e"]
    lines += [f"cmake {' '.join(flags)} -DCMAKE_INSTALL_PREFIX:PATH={made} -S {source} -B {build}/tritonserver/build"]
    lines += [f"cmake --build {build}/tritonserver/build --target install"]
    lines += [f"mkdir -p {install}/bin {install}/lib"]
    lines += [f"cp {made}/bin/tritonserver {install}/bin", f"cp {made}/lib/libtritonserver.so {install}/lib"]
    return lines


def main() -> None:
    """Write the script, and run it unless told otherwise."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--build-dir", type=pathlib.Path, required=True)
    parser.add_argument("--install-dir", type=pathlib.Path, required=True)
    parser.add_argument("--dryrun", action="store_true")
    arguments = parser.parse_args()
    arguments.build_dir.mkdir(parents=True, exist_ok=True)
    script = arguments.build_dir / "cmake_build"
    lines = commands(pathlib.Path(__file__).parent.resolve(), arguments.build_dir, arguments.install_dir)
    script.write_text("\n".join(lines) + "\n")
    if not arguments.dryrun:
        subprocess.run(["bash", str(script)], check=True)


if __name__ == "__main__":
    main()
