"""Paths, files that are written whole or appended to, and holding a folder: on disks and in buckets."""
