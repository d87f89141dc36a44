"""The names that a saved tensor may ask for, and what becomes of them.

Nothing is imported and nothing of the file is ever called: a name stands for itself, and what a
call of it would give is built here out of the arguments.

======================================================  =========================================
names that are known                                    what they become
======================================================  =========================================
torch._utils: _rebuild_tensor, _v2, _v3, _parameter,    `PickledTensor`
_parameter_with_state, _qtensor, _meta_tensor…
torch_npu.*: _rebuild_npu_tensor                        `PickledTensor`
torch._tensor: _rebuild_from_type_v2                    what it wraps
torch._utils: _rebuild_sparse_tensor                    list of its parts
torch: *Storage, dtypes, Size, device, Tensor, …        themselves, by name
torch.return_types: *                                   tuple of its fields
collections: OrderedDict, defaultdict                   `PickledDict`
builtins: set, frozenset, complex, slice, bytearray     list, number, nothing
======================================================  =========================================

The shapes of the calls are those of PyTorch 1.6 to 2.13 (torch/_utils.py, torch/_tensor.py,
torch/serialization.py) and of torch_npu.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TypeGuard

from dumpscope.errors import CorruptDumpError
from dumpscope.records import record
from dumpscope.regexes import regex

__all__ = [
    "PickledDict",
    "PickledTensor",
    "Storage",
    "TorchName",
    "call_name",
    "resolve_name",
    "resolve_storage",
]

_MAX_COUNT = 1 << 58
_MAX_DIMENSIONS = 64
_MAX_KEY = 128

_STORAGE_DTYPES: dict[str, str | None] = {
    "BFloat16Storage": "bfloat16",
    "BoolStorage": "bool",
    "ByteStorage": "uint8",
    "CharStorage": "int8",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "IntStorage": "int32",
    "LongStorage": "int64",
    "QInt32Storage": "qint32",
    "QInt8Storage": "qint8",
    "QUInt2x4Storage": "quint2x4",
    "QUInt4x2Storage": "quint4x2",
    "QUInt8Storage": "quint8",
    "ShortStorage": "int16",
    "UntypedStorage": None,
}

_DTYPE = regex(
    r"bool|(?:b?float|complex|[qu]{0,2}int|bits)[0-9]{1,3}(?:x[0-9]|_e[0-9]m[0-9][a-z]*(?:_x2)?)?"
)


@record(frozen=True, slots=True)
class Storage:
    """The bytes that tensors are views of.

    `count` is in elements of `dtype`, in bytes when that is `None`. `key` names the member of
    the archive.
    """

    key: str
    dtype: str | None
    count: int


@record(frozen=True, slots=True)
class PickledTensor:
    """A tensor as a view: element `i` lies at `offset + Σ i·strides`, all in elements.

    `storage` is `None` for a tensor without data (the meta device).
    """

    storage: Storage | None
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class PickledDict(list[tuple[object, object]]):
    """A dictionary as the list of its pairs: keys are neither hashed nor compared."""

    __slots__ = ()


@record(frozen=True, slots=True)
class TorchName:
    """A global of the pickle, by name only."""

    module: str
    name: str

    def __str__(self) -> str:
        return quoted(f"{self.module}.{self.name}")


def quoted(text: str) -> str:
    """Return text out of a file, short and printable."""
    return ascii(text if len(text) <= 120 else text[:120] + "…")


@lru_cache(maxsize=256)
def resolve_name(module: str, name: str) -> TorchName:
    """Return the global of this name.

    Raises
    ------
    CorruptDumpError
        It is none of those that saved tensors need.
    """
    if not _is_known(module, name):
        raise CorruptDumpError(
            f"the pickle asks for {quoted(f'{module}.{name}')}, which is not read: only tensors, "
            "plain containers and numbers are; save those alone"
        )
    return TorchName(module, name)


def resolve_storage(pid: object) -> Storage:
    """Return the storage that a persistent id means.

    It is `("storage", type, key, location, count)`, with one more field in files of before
    PyTorch 1.6.

    Raises
    ------
    CorruptDumpError
        It is anything else.
    """
    if type(pid) is not tuple or len(pid) not in (5, 6) or pid[0] != "storage":
        raise CorruptDumpError("a persistent id of the pickle is no storage")
    kind, key, count = pid[1], pid[2], pid[4]
    if type(kind) is not TorchName or kind.name not in _STORAGE_DTYPES:
        raise CorruptDumpError("a storage of the pickle has no known type")
    if type(key) is not str or len(key) > _MAX_KEY or not _is_size(count):
        raise CorruptDumpError("a storage of the pickle has no valid key or size")
    if len(pid) == 6 and pid[5] is not None:
        raise CorruptDumpError("a storage of the pickle is a part of another one")
    return Storage(key, _STORAGE_DTYPES[kind.name], count)


def call_name(function: object, arguments: object) -> object:
    """Return what a call of one of the known names gives; nothing is really called.

    Raises
    ------
    CorruptDumpError
        It is no function, or the arguments are not those that torch gives it.
    """
    if type(function) is not TorchName or type(arguments) is not tuple:
        raise CorruptDumpError("the pickle calls something that is no function")
    make = _CALLS.get((function.module, function.name))
    if make is None:
        if function.module == "torch.return_types" and arguments:
            return arguments[0]
        if function.name != "_rebuild_npu_tensor":
            raise CorruptDumpError(f"the pickle calls {function}, which is no function")
        make = _make_tensor
    try:
        return make(*arguments)
    except TypeError:
        raise CorruptDumpError(
            f"the pickle calls {function} with {len(arguments)} arguments"
        ) from None


def _is_size(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < _MAX_COUNT


def _is_known(module: str, name: str) -> bool:
    if (module, name) in _CALLS or (module, name) in _INERT:
        return True
    if module == "torch" and (_DTYPE.fullmatch(name) or name in _STORAGE_DTYPES):
        return True
    if name in _STORAGE_DTYPES:
        return module.startswith(("torch.", "torch_npu"))
    if name == "_rebuild_npu_tensor":
        return module.partition(".")[0] == "torch_npu"
    return module == "torch.return_types"


def _make_tensor(
    storage: object, offset: object, size: object, stride: object, *rest: object
) -> PickledTensor:
    """_rebuild_tensor, _rebuild_tensor_v2, _rebuild_npu_tensor: what follows does not matter."""
    del rest
    return _view(storage, offset, size, stride, None)


def _make_tensor_v3(
    storage: object,
    offset: object,
    size: object,
    stride: object,
    requires_grad: object,
    hooks: object,
    dtype: object,
    *rest: object,
) -> PickledTensor:
    del requires_grad, hooks, rest
    return _view(storage, offset, size, stride, _dtype_of(dtype))


def _make_meta_tensor(dtype: object, size: object, stride: object, *rest: object) -> PickledTensor:
    del rest
    return _view(None, 0, size, stride, _dtype_of(dtype))


def _dtype_of(dtype: object) -> str:
    if type(dtype) is not TorchName or not _DTYPE.fullmatch(dtype.name):
        raise CorruptDumpError("a tensor of the pickle has no known data type")
    return dtype.name


def _view(
    storage: object, offset: object, size: object, stride: object, dtype: str | None
) -> PickledTensor:
    if storage is not None and not isinstance(storage, Storage):
        raise CorruptDumpError("a tensor of the pickle has no storage")
    shape = _sizes(size)
    strides = _sizes(stride)
    if len(shape) != len(strides) or math.prod(shape) >= _MAX_COUNT:
        raise CorruptDumpError("a tensor of the pickle has sizes and strides that do not fit")
    if not _is_size(offset):
        raise CorruptDumpError("a tensor of the pickle has no valid offset")
    if dtype is None and storage is not None:
        dtype = storage.dtype
    return PickledTensor(storage, dtype or "uint8", offset, shape, strides)


def _sizes(value: object) -> tuple[int, ...]:
    if type(value) is tuple and len(value) <= _MAX_DIMENSIONS and all(map(_is_size, value)):
        return value
    raise CorruptDumpError("a tensor of the pickle has no valid sizes or strides")


def _keep_first(value: object, *rest: object) -> object:
    """A wrapper that only adds what is of no interest: a parameter, a Size, a set."""
    del rest
    return value


def _unwrap(function: object, kind: object, arguments: object, state: object) -> object:
    """_rebuild_from_type_v2: a tensor with attributes."""
    del state
    if type(kind) is not TorchName or (kind.module, kind.name) not in _INERT:
        raise CorruptDumpError("the pickle makes a tensor of an unknown class")
    if type(function) is TorchName and function.name == "_rebuild_from_type_v2":
        raise CorruptDumpError("the pickle wraps a tensor in itself")
    return call_name(function, arguments)


def _make_sparse(layout: object, parts: object, *rest: object) -> list[object]:
    """Indices and values; the size behind them is a tuple of integers."""
    del layout, rest
    return list(parts) if type(parts) is tuple and len(parts) <= 8 else []


def _make_dict(*rest: object) -> PickledDict:
    """OrderedDict and defaultdict: the items are set afterwards."""
    if rest and type(rest[0]) in (list, tuple, PickledDict):
        raise CorruptDumpError("the pickle fills a dictionary in a way that is not read")
    return PickledDict()


def _make_complex(real: object, imaginary: object) -> complex:
    if type(real) is not float or type(imaginary) is not float:
        raise CorruptDumpError("a complex number of the pickle has no two parts")
    return complex(real, imaginary)


def _make_nothing(*rest: object) -> None:
    """Devices, layouts, slices, bytes: nothing to look at."""
    del rest


def _builtin(name: str) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("__builtin__", name), ("builtins", name)


_CALLS: dict[tuple[str, str], Callable[..., object]] = {
    ("torch._utils", "_rebuild_tensor"): _make_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _make_tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _make_tensor_v3,
    ("torch._utils", "_rebuild_qtensor"): _make_tensor,
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): _make_meta_tensor,
    ("torch._utils", "_rebuild_parameter"): _keep_first,
    ("torch._utils", "_rebuild_parameter_with_state"): _keep_first,
    ("torch._utils", "_rebuild_sparse_tensor"): _make_sparse,
    ("torch._tensor", "_rebuild_from_type_v2"): _unwrap,
    ("torch.serialization", "_get_layout"): _make_nothing,
    ("torch", "Size"): _keep_first,
    ("torch", "device"): _make_nothing,
    ("collections", "OrderedDict"): _make_dict,
    ("collections", "defaultdict"): _make_dict,
    ("_codecs", "encode"): _make_nothing,
    **dict.fromkeys(_builtin("set"), _keep_first),
    **dict.fromkeys(_builtin("frozenset"), _keep_first),
    **dict.fromkeys(_builtin("complex"), _make_complex),
    **dict.fromkeys(_builtin("slice"), _make_nothing),
    **dict.fromkeys(_builtin("bytearray"), _make_nothing),
}

_INERT = frozenset(
    {
        ("torch", "Tensor"),
        ("torch", "per_channel_affine"),
        ("torch", "per_channel_affine_float_qparams"),
        ("torch", "per_tensor_affine"),
        ("torch.nn.parameter", "Buffer"),
        ("torch.nn.parameter", "Parameter"),
        *(name for kind in ("dict", "float", "int", "list", "tuple") for name in _builtin(kind)),
    }
)
