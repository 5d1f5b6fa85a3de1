"""Protobuf becomes the types and nulls of Spark's ``from_protobuf``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("google.protobuf")

from litelog.errors import ConfigError
from litelog.spark.query import protobuf_values
from tests.builders.protobuf_messages import ORDER, descriptor_set, encode

ALL = """
name: "all.proto"  package: "all"  syntax: "proto3"
dependency: "google/protobuf/timestamp.proto" dependency: "google/protobuf/duration.proto"
message_type {
  name: "All"
  field { name: "u32" number: 1 type: TYPE_UINT32 label: LABEL_OPTIONAL }
  field { name: "u64" number: 2 type: TYPE_FIXED64 label: LABEL_OPTIONAL }
  field { name: "real" number: 3 type: TYPE_FLOAT label: LABEL_OPTIONAL }
  field { name: "flag" number: 4 type: TYPE_BOOL label: LABEL_OPTIONAL }
  field { name: "raw" number: 5 type: TYPE_BYTES label: LABEL_OPTIONAL }
  field { name: "at" number: 6 type: TYPE_MESSAGE label: LABEL_OPTIONAL type_name: ".google.protobuf.Timestamp" }
  field { name: "took" number: 7 type: TYPE_MESSAGE label: LABEL_OPTIONAL type_name: ".google.protobuf.Duration" }
  field { name: "counts" number: 8 type: TYPE_MESSAGE label: LABEL_REPEATED type_name: ".all.All.CountsEntry" }
  field { name: "inner" number: 9 type: TYPE_MESSAGE label: LABEL_REPEATED type_name: ".all.All.Inner" }
  field { name: "given" number: 10 type: TYPE_INT32 label: LABEL_OPTIONAL oneof_index: 0 proto3_optional: true }
  nested_type { name: "Inner" field { name: "n" number: 1 type: TYPE_SINT32 label: LABEL_OPTIONAL } }
  nested_type {
    name: "CountsEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL }
  }
  oneof_decl { name: "_given" }
}
"""
RECURSIVE = """
name: "tree.proto"  package: "tree"  syntax: "proto3"
message_type {
  name: "Tree" field { name: "left" number: 1 type: TYPE_MESSAGE label: LABEL_OPTIONAL type_name: ".tree.Tree" }
}
"""
KNOWN = ("timestamp", "duration")


def decoded(name: str, descriptor: bytes, *values: bytes, lenient: bool = False) -> list[Any]:
    read = protobuf_values.reader(name, descriptor, lenient=lenient)
    import pyarrow

    return pyarrow.array(map(read, values), protobuf_values.arrow_type(name, descriptor)).to_pylist()


def test_each_type_becomes_that_of_spark() -> None:
    everything = descriptor_set(ALL, known=KNOWN)
    assert protobuf_values.spark_type("All", everything).simpleString() == (
        "struct<u32:int,u64:bigint,real:float,flag:boolean,raw:binary,at:timestamp,took:interval day to second,"
        "counts:map<string,int>,inner:array<struct<n:int>>,given:int>"
    )
    moment = datetime(2026, 1, 2, 3, 4, 5, 678, UTC)
    value = encode(
        *(everything, "all.All"),
        u32=2**32 - 1,
        u64=2**63,
        real=0.5,
        flag=True,
        raw=b"\x00\xff",
        counts={"a": 1},
        at=moment,
        took=timedelta(microseconds=-5),
        inner=[{"n": -3}, {}],
        given=0,
    )
    (found,) = decoded("all.All", everything, value)
    assert found == {
        "u32": -1,
        "u64": -(2**63),
        "real": 0.5,
        "flag": True,
        "raw": b"\x00\xff",
        "counts": [("a", 1)],
        "at": moment,
        "took": timedelta(microseconds=-5),
        "inner": [{"n": -3}, {"n": None}],
        "given": 0,
    }


def test_what_is_not_set_is_null_or_empty() -> None:
    everything = descriptor_set(ALL, known=KNOWN)
    (found,) = decoded("All", everything, b"")
    assert {name for name, value in found.items() if value is not None} == {"counts", "inner"}
    assert (found["counts"], found["inner"]) == ([], [])


def test_a_number_that_the_enum_lacks_has_a_name_too() -> None:
    shop = descriptor_set(ORDER)
    numbers = [encode(shop, "shop.Order", state=number) for number in (0, 1, 7)]
    assert [row["state"] for row in decoded("Order", shop, *numbers)] == [None, "PAID", "UNKNOWN_ENUM_VALUE_State_7"]


def test_a_value_that_is_not_a_message_is_an_error_or_null() -> None:
    shop = descriptor_set(ORDER)
    with pytest.raises(ValueError, match="a value is not a message Order"):
        decoded("Order", shop, b"\x08")
    assert decoded("Order", shop, b"\x08", lenient=True) == [None]


def test_a_time_that_spark_cannot_hold_is_an_error_or_null() -> None:
    """Seconds have 64 bits in Protobuf, and microseconds in Spark."""
    everything = descriptor_set(ALL, known=KNOWN)
    late = b"\x08" + b"\x80" * 8 + b"\x40"  # 2**62 seconds
    for tag in (b"\x32", b"\x3a"):
        value = tag + bytes([len(late)]) + late
        assert decoded("All", everything, value, b"", lenient=True)[0] is None
        with pytest.raises(ValueError, match="a value is not a message All"):
            decoded("All", everything, value)


def test_text_that_is_not_utf_8_is_read_as_java_does() -> None:
    """``proto2`` does not check it."""
    old = descriptor_set(
        """name: "old.proto" package: "old" syntax: "proto2"
        message_type { name: "Old" field { name: "text" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL } }"""
    )
    assert decoded("Old", old, b"\x0a\x03a\xffb") == [{"text": "a\ufffdb"}]


@pytest.mark.parametrize(
    ("name", "files", "said"),
    [
        ("Cart", (ORDER,), "the descriptor has no message Cart"),
        ("All", (ALL,), "cannot be used.*--include_imports"),
        ("Tree", (RECURSIVE,), r"message tree\.Tree contains itself"),
    ],
)
def test_a_descriptor_that_does_not_do_says_why(name: str, files: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        protobuf_values.spark_type(name, descriptor_set(*files))
