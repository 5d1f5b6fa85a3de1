"""Calls the functions of the compiled library with numbers, and with the addresses of buffers. It needs no NumPy, which
would take 10 MiB of an idle daemon and a fifth of its start."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

    Addressed = bytes | memoryview | ctypes.c_void_p | npt.NDArray[Any]

_ADDRESS, _NUMBER = ctypes.c_void_p, ctypes.c_int64
_BYTE = ctypes.c_char.from_buffer
_AS_THEY_ARE = (int, bytes, ctypes.c_void_p, type(None))


class _View(ctypes.Structure):
    """``Py_buffer`` of Python's C interface."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("owner", ctypes.c_void_p),
        ("bytes", ctypes.c_ssize_t),
        ("item_bytes", ctypes.c_ssize_t),
        ("is_read_only", ctypes.c_int),
        ("dimensions", ctypes.c_int),
        ("format", ctypes.c_void_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


_get_view = ctypes.pythonapi.PyObject_GetBuffer
_get_view.argtypes = [ctypes.py_object, ctypes.POINTER(_View), ctypes.c_int]
_release_view = ctypes.pythonapi.PyBuffer_Release
_release_view.argtypes, _release_view.restype = [ctypes.POINTER(_View)], None


_make_bytes = ctypes.pythonapi.PyByteArray_FromStringAndSize
_make_bytes.argtypes, _make_bytes.restype = [ctypes.c_char_p, ctypes.c_ssize_t], ctypes.py_object


def make_bytes(size: int) -> bytearray:
    """Room for ``size`` bytes, with any content."""
    made: bytearray = _make_bytes(None, size)
    return made


def make_numbers(count: int) -> memoryview:
    """Room for ``count`` numbers of 64 bits, and at least for one. They are 0."""
    return memoryview(bytearray(8 * max(count, 1))).cast("q")


def read(data: memoryview) -> bytes | ctypes.c_void_p:
    """The bytes as ``call`` passes their address. The caller keeps ``data`` until it has called. BufferError if they do
    not lie one after the other."""
    whole = data.obj
    if type(whole) is bytes and len(whole) == data.nbytes and data.c_contiguous:
        return whole
    return ctypes.c_void_p(address_of(data))


def address_of(buffer: Any) -> int:
    """The address of the bytes of a view or an array; 0 for None. What NumPy says itself takes ten times as long, which
    counts for a small piece. BufferError if the bytes do not lie one after the other."""
    if buffer is None:
        return 0
    view = buffer if type(buffer) is memoryview else buffer.data
    if view.nbytes and not view.readonly and view.c_contiguous:
        return ctypes.addressof(_BYTE(view))
    return _address_of_view(view)


def _address_of_view(data: memoryview) -> int:
    view = _View()
    _get_view(data, view, 0)  # raises BufferError
    try:
        return view.address or 0
    finally:
        _release_view(view)


def call(function: Any, *arguments: int | Addressed | None) -> int:
    """Call a function of the library with numbers, and with the addresses of buffers; 0 for None. It writes only to
    buffers that are writable."""
    if not function.argtypes:
        function.restype = _NUMBER
        function.argtypes = [_NUMBER if isinstance(each, int) else _ADDRESS for each in arguments]
    found: int = function(*[each if isinstance(each, _AS_THEY_ARE) else address_of(each) for each in arguments])
    return found
