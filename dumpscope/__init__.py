"""Find the operator that went wrong first in Ascend NPU dumps."""
