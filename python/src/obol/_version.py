"""The version of this package, and which libraries it runs with."""

from __future__ import annotations

VERSION = "0.1.0"


def numbers(version: str) -> tuple[int, int, int]:
    """The numbers of a version such as `1.2.3`, `1.2.3-rc.1` or `1.2.3+build`."""
    plain = version.split("+")[0].split("-")[0]
    major, minor, patch = plain.split(".")
    return int(major), int(minor), int(patch)


def is_fit(library: str, package: str = VERSION) -> bool:
    """Whether a library has all functions of this package.

    A library gains functions, and loses none, within a major version.
    """
    has, needs = numbers(library), numbers(package)
    return has[0] == needs[0] and has >= needs
