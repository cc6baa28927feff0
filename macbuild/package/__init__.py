"""Make artifacts: tarballs and wheels, their SBOM and manifest, and the `dist/` folder they are published to."""
