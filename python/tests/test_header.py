"""The package calls the library as `obol.h` declares it."""

from __future__ import annotations

import ctypes
import enum
import re
import unittest
from pathlib import Path
from typing import Any

import obol
from obol import _library, _version

SOURCES = Path(__file__).resolve().parents[2]
HEADER = re.sub(r"/\*.*?\*/", "", (SOURCES / "capi/include/obol.h").read_text(), flags=re.DOTALL)

#: What the package leaves to other languages, and why. A new function of the library has to be put here, or to be
#: offered.
NOT_OFFERED = {
    "obol_guard": "a guard checks before and after a block of Python",
    "obol_attach_again": "no other thread may use the handle meanwhile, so the package attaches anew",
    "obol_view_clone": "references to a view share one handle",
    **dict.fromkeys(
        [
            "obol_replica_open",
            "obol_replica_open_parts",
            "obol_replica_open_empty",
            "obol_replica_redundancy",
            "obol_replica_close",
            "obol_propose",
            "obol_read",
            "obol_output_write",
        ],
        "a replica calls its service within a fraction of a heartbeat, which the GIL does not allow",
    ),
}

WORK = "void (*work)(const struct obol_view *view, void *context)"
TYPES: dict[str, Any] = {
    "void": None,
    "bool": ctypes.c_bool,
    "int": ctypes.c_int,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "void*": ctypes.c_void_p,
    "char*": ctypes.c_char_p,
    "struct obol_failure*": ctypes.POINTER(_library.FailureStruct),
    "struct obol_member*": ctypes.POINTER(_library.MemberStruct),
}


def type_of(declared: str) -> Any:
    """The type of ctypes for a type of C."""
    plain = re.sub(r"\s*\*\s*", "*", declared.replace("const ", "")).strip()
    plain = re.sub(r"^enum \w+$", "int", plain)
    if plain in TYPES:
        return TYPES[plain]
    if re.fullmatch(r"struct obol_\w+\*\*", plain):
        return ctypes.POINTER(ctypes.c_void_p)
    if re.fullmatch(r"struct obol_\w+\*", plain):
        return ctypes.c_void_p
    raise AssertionError(f"a type that this test does not know: {declared!r}")


def typed(declared: str) -> tuple[str, Any]:
    """The name and the type of an argument, a member or a function."""
    if declared == WORK:
        return "work", _library.WORK
    found = re.fullmatch(r"(.*?)(\w+)(\[\d+\])?", declared.strip(), flags=re.DOTALL)
    assert found is not None, declared
    kind, name, length = found.groups()
    if length:
        assert kind.strip() == "char", declared
        return name, ctypes.c_char * int(length[1:-1])
    return name, type_of(kind)


def functions() -> dict[str, str]:
    """The functions of the header, as they are declared."""
    body = HEADER.split('extern "C" {')[1]
    declared = re.findall(r"^\w[^;#]*?\bobol_\w+\([^;]*\);", body, flags=re.MULTILINE)
    plain = [" ".join(text.split()) for text in declared]
    return {re.findall(r"\w+(?=\()", text)[0]: text for text in plain}


def signature(declaration: str) -> tuple[Any, list[Any]]:
    """The result and the arguments of a function."""
    head, _, rest = declaration.partition("(")
    listed = rest.removesuffix(");")
    arguments = [] if listed == "void" else re.split(r",\s*", listed.replace(WORK, "WORK"))
    return typed(head)[1], [typed(WORK if argument == "WORK" else argument)[1] for argument in arguments]


def struct(name: str) -> list[tuple[str, Any]]:
    """The members of a struct of the header."""
    found = re.search(rf"typedef struct {name} {{(.*?)}} {name};", HEADER, flags=re.DOTALL)
    assert found is not None, name
    return [typed(" ".join(member.split())) for member in found[1].split(";") if member.strip()]


def values(name: str) -> dict[str, int]:
    """The values of an enum of the header, without their prefix."""
    found = re.search(rf"typedef enum {name} {{(.*?)}} {name};", HEADER, flags=re.DOTALL)
    assert found is not None, name
    pairs = re.findall(r"(\w+) = (\d+)", found[1])
    return {key.removeprefix(f"{name.upper()}_"): int(value) for key, value in pairs}


class Header(unittest.TestCase):
    def test_each_function_is_offered_or_left_out_for_a_reason(self) -> None:
        declared = set(functions())
        self.assertGreater(len(declared), 30)
        self.assertEqual(declared, set(re.findall(r"\bobol_\w+(?=\()", HEADER.split('extern "C" {')[1])))
        self.assertEqual(declared, set(_library.SIGNATURES) | set(NOT_OFFERED))
        self.assertEqual(set(_library.SIGNATURES) & set(NOT_OFFERED), set())

    def test_signatures_are_those_of_the_header(self) -> None:
        declared = functions()
        for name, own in _library.SIGNATURES.items():
            with self.subTest(name):
                self.assertEqual(own, signature(declared[name]))

    def test_structs_are_those_of_the_header(self) -> None:
        pairs: list[tuple[str, type[ctypes.Structure]]] = [
            ("obol_member", _library.MemberStruct),
            ("obol_failure", _library.FailureStruct),
        ]
        for name, own in pairs:
            with self.subTest(name):
                self.assertEqual(list(own._fields_), struct(name))

    def test_enums_are_those_of_the_header(self) -> None:
        pairs: list[tuple[str, type[enum.IntEnum]]] = [
            ("obol_status", obol.Status),
            ("obol_kind", obol.Kind),
            ("obol_reason", obol.Reason),
        ]
        for name, own in pairs:
            with self.subTest(name):
                self.assertEqual({member.name: int(member) for member in own}, values(name))

    def test_the_version_is_that_of_the_library(self) -> None:
        found = re.search(r'^version = "(.*)"', (SOURCES / "Cargo.toml").read_text(), flags=re.MULTILINE)
        assert found is not None
        self.assertEqual(_version.VERSION, found[1])


if __name__ == "__main__":
    unittest.main()
