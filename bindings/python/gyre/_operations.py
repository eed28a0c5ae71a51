# SPDX-License-Identifier: Apache-2.0
"""gyre._operations: Gyre's types as NumPy's: for operations and types of the program's own, and for buckets.
"""
import sys
import traceback

import numpy

from . import _gyre


def _pair(value):
    return numpy.dtype([("value", value), ("index", "i4")], align=True)


# by the numbers of gyre.Type; NumPy has no bfloat16 and no 8-bit floats: their bits
_dtypes = dict(enumerate(map(numpy.dtype, (
    "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "u2", "f4", "f8", "?", "c8", "c16", "u1", "u1",
    _pair("f4"), _pair("f8"), _pair("i4"), _pair("i8"), _pair("i2")))))


def apply(function, left, right, number):
    """What an Operation does: function(left, right) on the bytes."""
    left, right = numpy.frombuffer(left, _dtypes[number]), numpy.frombuffer(right, _dtypes[number])
    try:
        function(left, right)
        if sys.getrefcount(left) > 2 or sys.getrefcount(right) > 2:  # our name, and the argument
            raise ValueError("the function of the operation has kept left or right; "
                             "it must copy what it keeps")
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # they must not hold memory of Gyre
        left = right = None
        raise


def as_array(memory, number):
    """The bytes of a Memory as an array of the type."""
    return memory.array(_dtypes[number])


class UserType:
    """An element type of the program's own, for the argument type: elements of a NumPy dtype of up to 4096
    bytes, or of so many bytes. Calls that move take it, and an Operation, whose function gets arrays of the
    dtype. Ranks create and free their types in the same order.

    >>> line = gyre.UserType([("slope", "f8"), ("shift", "f8")])
    >>> def after(left, right):  # right(left(x))
    ...     right["shift"] += right["slope"] * left["shift"]
    ...     right["slope"] *= left["slope"]
    >>> x = numpy.array([(2.0, comm.rank)], line.dtype)
    >>> comm.all_reduce(x, op=gyre.Operation(after), type=line)
    >>> bool(x["slope"][0] == 2.0 ** comm.size)
    True
    """

    def __init__(self, dtype):
        self._number = None
        if isinstance(dtype, int) and dtype < 0:
            raise ValueError(f"UserType: dtype is {dtype}; it must not be negative")
        try:
            self.dtype = numpy.dtype(f"V{dtype}" if isinstance(dtype, int) else dtype)
        except TypeError as error:
            raise TypeError(f"UserType: dtype: {error}") from None
        if self.dtype.hasobject:
            raise TypeError(f"UserType: {self.dtype} holds Python objects, whose addresses mean nothing to other ranks")
        self._number = _gyre.type_create(self.dtype.itemsize)
        _dtypes[self._number] = self.dtype

    def __index__(self):
        if self._number is None:
            raise ValueError("this UserType was freed")
        return self._number

    def __reduce__(self):  # a copy would free the number, and elsewhere the number is that of another type
        raise TypeError("a UserType cannot be copied or pickled: make another one of its dtype")

    def free(self) -> None:
        """Frees its number for another type; so does dropping it. No call that uses it may be under way, and no
        Plan or Buckets may have it."""
        if self._number is not None:
            _gyre.type_free(self._number)
            self._number = None

    def __del__(self):
        if getattr(self, "_number", None) is not None:
            self.free()
