"""What operators compute, in numpy, with the arithmetic of the type they compute in.

Values are computed in float32 and rounded to their type at the end, as the hardware does: in
INF_NAN mode IEEE applies, in saturation mode Inf becomes the limit of the type and NaN becomes 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Kernel = Callable[[Sequence[Array]], Array]

NUMPY = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "bool": np.dtype(np.bool_),
}
LIMIT = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38}


def finish(values: Array, dtype: str, *, saturates: bool) -> Array:
    """Round to the type of the output."""
    if dtype == "bool":
        return values.astype(np.bool_)
    with np.errstate(all="ignore"):
        wide = values.astype(np.float64)
        if saturates:
            wide = np.clip(np.nan_to_num(wide, nan=0.0), -LIMIT[dtype], LIMIT[dtype])
        rounded: Array = wide.astype(np.float32).astype(NUMPY[dtype])
        return rounded


def run(kernel: Kernel, inputs: Sequence[Array], dtype: str, *, saturates: bool) -> Array:
    """Compute an output of a type from the inputs."""
    with np.errstate(all="ignore"):
        wide = [a if a.dtype == np.bool_ else a.astype(np.float32) for a in inputs]
        return finish(np.asarray(kernel(wide)), dtype, saturates=saturates)


def is_bad(values: Array) -> Array:
    """Which elements are not finite."""
    if values.dtype == np.bool_:
        return np.zeros(values.shape, dtype=bool)
    found: Array = ~np.isfinite(values.astype(np.float32))
    return found


def at_limit(values: Array, dtype: str) -> Array:
    """Which elements are the largest or smallest finite value of the type."""
    if dtype == "bool":
        return np.zeros(values.shape, dtype=bool)
    found: Array = np.abs(values.astype(np.float32)) == np.float32(LIMIT[dtype])
    return found


def matmul(x: Sequence[Array]) -> Array:
    product: Array = np.matmul(x[0], x[1])
    return product


def softmax(x: Sequence[Array]) -> Array:
    shifted = np.exp(x[0] - x[0].max(axis=-1, keepdims=True))
    divided: Array = shifted / shifted.sum(axis=-1, keepdims=True)
    return divided


def layer_norm(x: Sequence[Array]) -> Array:
    centred = x[0] - x[0].mean(axis=-1, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
    normed: Array = centred * scale * x[1] + x[2]
    return normed


def gelu(x: Sequence[Array]) -> Array:
    curve: Array = 0.5 * x[0] * (1 + np.tanh(0.79788 * (x[0] + 0.044715 * x[0] ** 3)))
    return curve


def gelu_grad(x: Sequence[Array]) -> Array:
    slope: Array = x[0] * 0.5 * (1 + np.tanh(0.79788 * x[1]))
    return slope


def times(factor: float) -> Kernel:
    return lambda x: x[0] * np.float32(factor)


def step_down(rate: float) -> Kernel:
    """The optimizer: a weight and its gradient give the new weight."""
    return lambda x: x[0] - np.float32(rate) * x[1]


def masked_fill(value: float) -> Kernel:
    return lambda x: np.where(x[1], np.float32(value), x[0])


def fill(value: float, shape: tuple[int, ...]) -> Kernel:
    return lambda x: np.full(shape, value, dtype=np.float32)


ADD: Kernel = lambda x: x[0] + x[1]
SUB: Kernel = lambda x: x[0] - x[1]
MUL: Kernel = lambda x: x[0] * x[1]
DIV: Kernel = lambda x: x[0] / x[1]
RELU: Kernel = lambda x: np.where(x[0] > 0, x[0], np.float32(0))
MAXIMUM: Kernel = lambda x: np.fmax(x[0], x[1])
LESS: Kernel = lambda x: x[0] < x[1]
SELECT: Kernel = lambda x: np.where(x[0], x[1], x[2])
EXP: Kernel = lambda x: np.exp(x[0])
LOG: Kernel = lambda x: np.log(x[0])
SQRT: Kernel = lambda x: np.sqrt(x[0])
TANH: Kernel = lambda x: np.tanh(x[0])
COPY: Kernel = lambda x: x[0]
SUM: Kernel = lambda x: x[0].sum(axis=-1, keepdims=True)
TRANSPOSE: Kernel = lambda x: np.swapaxes(x[0], -1, -2).copy()
