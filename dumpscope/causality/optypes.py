"""Operator types that mean something to the verdicts, whatever the framework calls them."""

from __future__ import annotations

import re
from functools import lru_cache

from dumpscope.regexes import regex

__all__ = ["checks_gradients", "is_backward", "is_generator", "is_source", "keeps_state"]

_GENERATORS = regex(
    r"^(fills?|filld|fillv2|range|arange|linspace|logspace|eye|zeros|ones|full|zeroslike|oneslike|"
    r"fulllike|newzeros|newones|newfull|dropoutgenmask.*|.*random.*|rand|randn|"
    r"randint|randperm|uniform|normal|truncatednormal|multinomial|bernoulli|empty.*)$"
)
_SOURCES = regex(
    r"^(data|anndata|refdata|aippdata|const|constant|constplaceholder|variable|variablev2|"
    r"varhandleop|placeholder|parameter|getnext|iteratorgetnext|dynamicgetnextv?2?|queuedata|"
    r"fileconstant|load|readvariableop)$"
)
_STATE = regex(r"^(refdata|variable|variablev2|varhandleop|readvariableop|parameter)$")
_BACKWARD = regex(r"(grad|backward|backprop)(v[0-9]+|input|filter|bias|d)*$")
_GRADIENT_CHECKS = regex(
    r"(floatstatus|allfinite|lossscale|checkoverflow|nonfinitecheck|foreachnonfinite)"
)


@lru_cache(maxsize=4096)
def _folded(op_type: str) -> str:
    last = op_type.rpartition(".")[2]
    folded = re.sub(r"[^a-z0-9]", "", last.lower())
    return re.sub(r"^(aclnn)?(inplace)?", "", folded)


def is_generator(op_type: str) -> bool:
    """Whether the operator makes its output from nothing (Fill, Random, Range, …)."""
    return _GENERATORS.match(_folded(op_type)) is not None


def is_source(op_type: str) -> bool:
    """Whether the operator only hands in what comes from outside of the graph."""
    return _SOURCES.match(_folded(op_type)) is not None


def keeps_state(op_type: str) -> bool:
    """Whether a source hands in what operators of the network may have written themselves."""
    return _STATE.match(_folded(op_type)) is not None


def checks_gradients(op_type: str) -> bool:
    """Whether the operator tells the training loop to skip a step that overflowed."""
    return _GRADIENT_CHECKS.search(_folded(op_type)) is not None


@lru_cache(maxsize=65536)
def is_backward(op_name: str, op_type: str = "") -> bool:
    """Whether an operator's name or type says that it belongs to the backward pass."""
    name = op_name.lower()
    if "gradients" in name or ".backward" in name or "parameters_grad" in name:
        return True
    return _BACKWARD.search(_folded(op_type)) is not None
