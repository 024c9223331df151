"""Where the library is found, and which one is refused."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import unittest
from types import SimpleNamespace
from typing import cast

import obol
from obol import _errors, _library, _version

LOAD = "import obol; print(obol.library_version())"


def loaded(variable: str) -> subprocess.CompletedProcess[str]:
    """What another process says that loads the library."""
    return subprocess.run(
        [sys.executable, "-c", LOAD],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), _library.VARIABLE: variable},
        capture_output=True,
        text=True,
        timeout=60,
    )


def stand_in(version: str, lacks: str = "") -> ctypes.CDLL:
    """A library of this version, without one of its functions."""

    class Function:
        def __call__(self) -> bytes:
            return version.encode()

    names = [name for name in _library.SIGNATURES if name != lacks]
    return cast(ctypes.CDLL, SimpleNamespace(**{name: Function() for name in names}))


class Versions(unittest.TestCase):
    def test_later_ones_of_the_same_major_version_fit(self) -> None:
        for library, package, fits in [
            ("0.1.0", "0.1.0", True),
            ("0.1.1", "0.1.0", True),
            ("0.10.0", "0.9.3", True),
            ("0.1.0-rc.1+build.5", "0.1.0", True),
            ("0.1.0", "0.1.1", False),
            ("0.1.9", "0.2.0", False),
            ("1.0.0", "0.1.0", False),
            ("0.9.0", "1.0.0", False),
        ]:
            with self.subTest(library=library, package=package):
                self.assertEqual(_version.is_fit(library, package), fits)

    def test_a_library_of_another_version_is_refused(self) -> None:
        _library.declare(stand_in(_version.VERSION), "here")
        with self.assertRaisesRegex(obol.LibraryError, "here has version 99.0.0, and this package needs"):
            _library.declare(stand_in("99.0.0"), "here")

    def test_a_library_without_a_function_is_refused(self) -> None:
        for lacks in _library.SIGNATURES:
            with self.subTest(lacks), self.assertRaisesRegex(obol.LibraryError, f"here has no function {lacks}:"):
                _library.declare(stand_in(_version.VERSION, lacks), "here")

    def test_the_soname_has_the_major_version(self) -> None:
        self.assertEqual(_library.soname(), f"libobol.so.{_version.VERSION.split('.')[0]}")


class Finding(unittest.TestCase):
    def test_a_path_without_a_library_is_named_with_what_to_do(self) -> None:
        ran = loaded("/nowhere/libobol.so")
        self.assertEqual(ran.returncode, 1)
        for words in ["LibraryError: OBOL_LIBRARY=/nowhere/libobol.so cannot be loaded", "libobol0"]:
            self.assertIn(words, ran.stderr)

    def test_another_library_is_refused(self) -> None:
        ran = loaded("libc.so.6")
        self.assertEqual(ran.returncode, 1)
        self.assertIn("libc.so.6 has no function obol_version", ran.stderr)

    @unittest.skipUnless(_library.VARIABLE in os.environ, "OBOL_LIBRARY names no library")
    def test_the_library_that_is_there_fits(self) -> None:
        ran = loaded(os.environ[_library.VARIABLE])
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertTrue(_version.is_fit(ran.stdout.strip()))

    def test_importing_needs_no_library(self) -> None:
        code = "import obol; print(obol.__version__)"
        environment = {"PYTHONPATH": os.pathsep.join(sys.path), _library.VARIABLE: "/nowhere"}
        ran = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
        )
        self.assertEqual((ran.stdout.strip(), ran.stderr), (_version.VERSION, ""))


class Arguments(unittest.TestCase):
    def test_a_text_with_a_zero_byte_is_refused_and_not_cut(self) -> None:
        self.assertEqual(_library.text("name", "web-1"), b"web-1")
        self.assertIsNone(_library.text("root", None))
        with self.assertRaisesRegex(obol.ArgumentError, "name 'web.x00x' has a zero byte"):
            _library.text("name", "web\0x")

    def test_durations(self) -> None:
        self.assertEqual(_library.nanoseconds(0), 0)
        self.assertEqual(_library.nanoseconds(0.25), 250_000_000)
        self.assertEqual(_library.nanoseconds(float("inf")), 2**64 - 1)
        for bad in [-1, float("nan")]:
            with self.assertRaises(obol.ArgumentError):
                _library.nanoseconds(bad)


class Errors(unittest.TestCase):
    def test_each_status_has_an_exception_with_the_text_and_the_next_step(self) -> None:
        for status, kind in [
            (obol.Status.ARGUMENT, obol.ArgumentError),
            (obol.Status.CLUSTER, obol.ClusterError),
            (obol.Status.AGENT_DIED, obol.AgentDied),
            (obol.Status.TIMEOUT, obol.Timeout),
            (obol.Status.FORKED, obol.Forked),
            (obol.Status.INACTIVE, obol.Inactive),
        ]:
            error = _errors.of_status(status, "it rains")
            self.assertIs(type(error), kind)
            self.assertEqual((error.status, error.text), (status, "it rains"))
            self.assertEqual(str(error), f"it rains; {error.next_step}")

    def test_a_status_of_a_later_library_is_an_error_too(self) -> None:
        error = _errors.of_status(99, "new")
        self.assertIs(type(error), obol.Error)
        self.assertEqual((error.status, error.text), (99, "status 99: new"))

    def test_they_are_what_python_programs_catch(self) -> None:
        self.assertTrue(issubclass(obol.Timeout, TimeoutError))
        self.assertTrue(issubclass(obol.ArgumentError, ValueError))
        self.assertTrue(issubclass(obol.LibraryError, ImportError))


if __name__ == "__main__":
    unittest.main()
