"""Turns dataclasses into Kafka's bytes and back; the dataclass's annotations are the schema.

Owns: primitive types, arrays, nesting, version ranges, compact forms and tagged fields of
flexible versions. Must not know: any message, any API, sockets. A message declares each field
once, with the versions that carry it::

    @message
    class OffsetFetchRequest:
        group_id: String
        topics: list[OffsetFetchTopic] | None
        require_stable: Annotated[Bool, since(7)] = False

and `decode(OffsetFetchRequest, 7, data)` follows from it. What bytes claim is never believed:
a length beyond the frame or an array count beyond `elements_max` raises before it allocates.
"""

import struct
import types
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from struct import Struct
from typing import (
    Annotated,
    Any,
    Final,
    NamedTuple,
    TypeAlias,
    TypeVar,
    dataclass_transform,
    get_args,
    get_type_hints,
)

from headrace.errors import MalformedError

T = TypeVar("T")

Value: TypeAlias = Any
"""What a schema describes: its type is known once the schema is read."""

_I8: Final = Struct(">b")
_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_I64: Final = Struct(">q")
_UVARINT_BYTES_MAX: Final = 5


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def message(cls: type[T]) -> type[T]:
    """Makes a class of annotated fields a message, or a part of one."""
    return dataclass(slots=True, kw_only=True)(cls)


class TooManyError(MalformedError):
    """A frame has more array elements than its reader admits."""


class UnfitError(ValueError):
    """A value that the field of a message cannot hold; the text names both."""


class UnfitTypeError(UnfitError, TypeError):
    """A value of another type than the field's."""


class Reader:
    """A position in one frame, and how many array elements it may still hold."""

    __slots__ = ("at", "data", "depth", "elements_left", "nested_max")

    def __init__(self, data: bytes, elements_max: int, nested_max: int | None = None) -> None:
        self.data = data
        self.at = self.depth = 0
        self.elements_left = elements_max
        self.nested_max = elements_max if nested_max is None else nested_max

    def take(self, length: int) -> bytes:
        """The next `length` bytes, copied out of the frame."""
        start = self.skip(length)
        return self.data[start : self.at]

    def skip(self, length: int) -> int:
        """Steps over `length` bytes and returns where they began.

        Raises:
            MalformedError: the frame ends before.
        """
        start = self.at
        end = start + length
        if length < 0 or end > len(self.data):
            raise MalformedError(f"{length} bytes wanted at {start} of {len(self.data)}")
        self.at = end
        return start

    def count(self, elements: int) -> int:
        """Admits an array of `elements`, each of which takes one byte or more.

        Raises:
            TooManyError: the frame may not hold so many.
            MalformedError: it cannot.
        """
        if not 0 <= elements <= len(self.data) - self.at:
            raise MalformedError(f"array of {elements} elements at {self.at}")
        if elements > self.elements_left:
            raise TooManyError(f"array of {elements} elements at {self.at}")
        self.elements_left -= elements
        return elements

    def enter(self, elements: int) -> None:
        """Admits an array as `count` does; what it holds is within it.

        Raises:
            TooManyError, MalformedError: as `count`.
        """
        self.count(elements)
        self.depth += 1
        if self.depth > 1 and elements > self.nested_max:
            raise MalformedError(f"array of {elements} elements within another at {self.at}")

    def uvarint(self) -> int:
        """An unsigned variable-length integer of at most 32 bits."""
        value = 0
        for index in range(_UVARINT_BYTES_MAX):
            byte = self.data[self.skip(1)]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value
        raise MalformedError(f"endless variable-length integer at {self.at}")


def uvarint(value: int) -> bytes:
    """`value` (>= 0) as an unsigned variable-length integer."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Codec(NamedTuple):
    """How one type is read from a frame and written to a list of chunks."""

    read: Callable[[Reader], Value]
    write: Callable[[list[bytes], Value], None]


class Primitive(NamedTuple):
    """A leaf type: its form in ordinary versions and, where it differs, in flexible ones."""

    plain: Codec
    compact: Codec


def _fixed(layout: Struct) -> Primitive:
    size, unpack, pack = layout.size, layout.unpack_from, layout.pack

    def read(reader: Reader) -> Value:
        return unpack(reader.data, reader.skip(size))[0]

    codec = Codec(read, lambda out, value: out.append(pack(value)))
    return Primitive(codec, codec)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise MalformedError(f"a string is not UTF-8: {error.reason}") from None


def _read_length(layout: Struct) -> Callable[[Reader], int | None]:
    def read(reader: Reader) -> int | None:
        length: int = layout.unpack_from(reader.data, reader.skip(layout.size))[0]
        if length < -1:
            raise MalformedError(f"length {length} at {reader.at}")
        return None if length < 0 else length

    return read


def _read_compact_length(reader: Reader) -> int | None:
    length = reader.uvarint()
    return None if length == 0 else length - 1


def _write_length(layout: Struct) -> Callable[[list[bytes], int | None], None]:
    return lambda out, length: out.append(layout.pack(-1 if length is None else length))


def _write_compact_length(out: list[bytes], length: int | None) -> None:
    out.append(uvarint(0 if length is None else length + 1))


def _chars(
    read_length: Callable[[Reader], int | None],
    write_length: Callable[[list[bytes], int | None], None],
    *,
    text: bool,
    nullable: bool,
) -> Codec:
    def read(reader: Reader) -> Value:
        length = read_length(reader)
        if length is None:
            if nullable:
                return None
            raise MalformedError(f"null where a value must be, at {reader.at}")
        raw = reader.take(length)
        return _text(raw) if text else raw

    def write(out: list[bytes], value: Value) -> None:
        raw = value.encode() if text and value is not None else value
        if raw is None and not nullable:
            raise TypeError("null in a field that is never null")
        write_length(out, None if raw is None else len(raw))
        if raw:
            out.append(raw)

    return Codec(read, write)


def _sized(layout: Struct, *, text: bool, nullable: bool) -> Primitive:
    return Primitive(
        _chars(_read_length(layout), _write_length(layout), text=text, nullable=nullable),
        _chars(_read_compact_length, _write_compact_length, text=text, nullable=nullable),
    )


def _boolean() -> Primitive:
    def read(reader: Reader) -> bool:
        return reader.data[reader.skip(1)] != 0

    codec = Codec(read, lambda out, value: out.append(b"\x01" if value else b"\x00"))
    return Primitive(codec, codec)


NULLABLE_STRING: Final = _sized(_I16, text=True, nullable=True)
NO_TAGS: Final = b"\x00"
"""Tagged fields of a flexible version that has none to send."""

Int8 = Annotated[int, _fixed(_I8)]
Int16 = Annotated[int, _fixed(_I16)]
Int32 = Annotated[int, _fixed(_I32)]
Int64 = Annotated[int, _fixed(_I64)]
Bool = Annotated[bool, _boolean()]


def _message() -> Primitive:
    def cut(codec: Codec) -> Codec:
        return Codec(
            codec.read,
            lambda out, value: codec.write(out, value and value[:MESSAGE_CHARS_MAX]),
        )

    return Primitive(cut(NULLABLE_STRING.plain), cut(NULLABLE_STRING.compact))


MESSAGE_CHARS_MAX: Final = 1000
"""Of a text for people: longer than any of ours, short enough for every client's length field."""

Message = Annotated[str | None, _message()]
"""Why something is refused; what is too long for a line is cut."""

String = Annotated[str, _sized(_I16, text=True, nullable=False)]
NullableString = Annotated[str | None, NULLABLE_STRING]
Bytes = Annotated[bytes, _sized(_I32, text=False, nullable=False)]
Records = Annotated[bytes | None, _sized(_I32, text=False, nullable=True)]


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of a message that carry a field."""

    first: int
    last: int = 2**15 - 1


def since(version: int) -> Versions:
    """The field exists from `version` on."""
    return Versions(version)


def between(first: int, last: int) -> Versions:
    """The field exists from version `first` to version `last`, both included."""
    return Versions(first, last)


_EVERY: Final = Versions(0)


class Kept(list[T]):
    """An array that does not change, and is encoded once for each version."""

    __slots__ = ("encoded",)

    def __init__(self, values: Iterable[T]) -> None:
        super().__init__(values)
        self.encoded: dict[object, bytes] = {}


def _array(element: Codec, *, flexible: bool, nullable: bool) -> Codec:
    read_length = _read_compact_length if flexible else _read_length(_I32)
    write_length = _write_compact_length if flexible else _write_length(_I32)
    read_element, write_element = element

    def read(reader: Reader) -> Value:
        count = read_length(reader)
        if count is None:
            if nullable:
                return None
            raise MalformedError(f"null where an array must be, at {reader.at}")
        reader.enter(count)
        elements = [read_element(reader) for _ in range(count)]
        reader.depth -= 1
        return elements

    def write(out: list[bytes], values: Value) -> None:
        if values is None and not nullable:
            raise TypeError("null in an array that is never null")
        if isinstance(values, Kept):
            out.append(values.encoded.get(write) or encoded_once(values))
        else:
            write_all(out, values)

    def write_all(out: list[bytes], values: Value) -> None:
        write_length(out, None if values is None else len(values))
        for value in values or ():
            write_element(out, value)

    def encoded_once(values: Kept[Value]) -> bytes:
        out: list[bytes] = []
        write_all(out, values)
        encoded = values.encoded[write] = b"".join(out)
        return encoded

    return Codec(read, write)


def skip_tags(reader: Reader) -> None:
    """Steps over tagged fields; none that we know carries one that matters."""
    for _ in range(reader.count(reader.uvarint())):
        reader.uvarint()
        reader.skip(reader.uvarint())


def _struct(cls: type, version: int, *, flexible: bool) -> Codec:
    hints = get_type_hints(cls, include_extras=True)
    carried: list[tuple[str, Codec]] = []
    for declared in fields(cls):
        hint = hints[declared.name]
        versions = next((m for m in _marks(hint) if isinstance(m, Versions)), _EVERY)
        if versions.first <= version <= versions.last:
            carried.append((declared.name, _codec(hint, version, flexible=flexible)))
        else:
            has_default = declared.default is not MISSING or declared.default_factory is not MISSING
            assert has_default, f"{cls.__name__}.{declared.name} is absent in {version}: no default"

    def read(reader: Reader) -> Value:
        message = cls(**{name: codec.read(reader) for name, codec in carried})
        if flexible:
            skip_tags(reader)
        return message

    def write(out: list[bytes], message: Value) -> None:
        for name, codec in carried:
            value = getattr(message, name)
            try:
                codec.write(out, value)
            except UnfitError:
                raise
            except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
                is_typed = isinstance(error, (TypeError, AttributeError)) or (
                    "required argument is not" in str(error)  # struct's, of a text for a number
                )
                kind = UnfitTypeError if is_typed else UnfitError
                raise kind(f"{cls.__name__}: {name} cannot be {value!r:.100}") from None
        if flexible:
            out.append(NO_TAGS)

    return Codec(read, write)


def _marks(hint: Value) -> tuple[Value, ...]:
    return getattr(hint, "__metadata__", ())


def _codec(hint: Value, version: int, *, flexible: bool) -> Codec:
    for mark in _marks(hint):
        if isinstance(mark, Primitive):
            return mark.compact if flexible else mark.plain
    if _marks(hint):
        hint = get_args(hint)[0]
    nullable = isinstance(hint, types.UnionType)
    if nullable:
        hint = next(arm for arm in get_args(hint) if arm is not types.NoneType)
    if is_dataclass(hint):
        assert isinstance(hint, type)
        return _struct(hint, version, flexible=flexible)
    assert isinstance(hint, types.GenericAlias), f"{hint} is no wire type"
    assert hint.__origin__ is list
    (element,) = hint.__args__
    return _array(_codec(element, version, flexible=flexible), flexible=flexible, nullable=nullable)


_COMPILED: Final[dict[tuple[type, int, bool], Codec]] = {}


def codec_of(message: type, version: int, *, flexible: bool = False) -> Codec:
    """The codec of a message class in one version; compiled once."""
    key = (message, version, flexible)
    if key not in _COMPILED:
        _COMPILED[key] = _struct(message, version, flexible=flexible)
    return _COMPILED[key]


def encode(message: Value, version: int = 0) -> bytes:
    """A message that stands alone, outside any frame, in its ordinary form.

    Raises:
        UnfitError: a field cannot hold its value.
    """
    out: list[bytes] = []
    codec_of(type(message), version).write(out, message)
    return b"".join(out)


def decode(message: type[T], data: bytes, version: int = 0) -> T:
    """Reads what `encode` wrote; further bytes after it are ignored.

    Raises:
        MalformedError: it is cut off, or claims more than it holds.
    """
    read: Callable[[Reader], T] = codec_of(message, version).read
    return read(Reader(data, len(data)))
