"""The version of the package: written into manifests, configs and records."""

__version__ = '0.1.0'
