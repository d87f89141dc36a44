"""What lies beside msprobe's dump.json: the module tree and the call stacks.

=================  ===============================================================================
file               what is in it
=================  ===============================================================================
`construct.json`   `{child: parent}`; a parent is a key of dump.json, `optimizer`, null, or
                   `[parent, micro step]` (Megatron)
`stack.json`       `{"0": [[names], [frames]], …}`, or `{name: [frames]}` of older versions;
                   frames innermost first
=================  ===============================================================================

Either may be missing or empty (level L1 has no tree). A backward has no stack of its own: that
of its forward is shown, and said to be.
"""

from __future__ import annotations

from dumpscope.errors import CorruptDumpError, DumpReadError
from dumpscope.msprobe_names import forward_twin, parse_probe_name
from dumpscope.readers.msprobe_json import load_json
from dumpscope.readers.protocol import Execution
from dumpscope.source import DumpSource

__all__ = ["CONSTRUCT", "STACK", "ModuleTree"]

CONSTRUCT = "construct.json"
STACK = "stack.json"
_MOST_FRAMES = 256
_LONGEST_FRAME = 4096


class ModuleTree:
    """Parents and call stacks of entries.

    Attributes
    ----------
    faults
        Why a file that is there could not be read.
    """

    def __init__(self, source: DumpSource) -> None:
        self.faults: list[DumpReadError] = []
        tree = self._load(source, CONSTRUCT)
        self._parents: dict[str, object] = tree if isinstance(tree, dict) else {}
        self._stacks: dict[str, tuple[str, ...]] = {}
        stacks = self._load(source, STACK)
        for key, value in stacks.items() if isinstance(stacks, dict) else ():
            self._add_stack(key, value)

    def names(self) -> list[str]:
        """Keys of all executions that either file knows, in order of the tree."""
        found = dict.fromkeys(self._parents)
        found.update(dict.fromkeys(self._stacks))
        return [name for name in found if parse_probe_name(name).kind != "other"]

    def complete(self, execution: Execution) -> None:
        """Add parent, micro step and call stack to an execution."""
        name = execution.op_name
        parent = self._parents.get(name)
        if isinstance(parent, list) and len(parent) == 2:
            if isinstance(parent[1], int):
                execution.attributes = (*execution.attributes, ("micro_step", str(parent[1])[:20]))
            parent = parent[0]
        if isinstance(parent, str):
            execution.parent = parent
        stack = self._stacks.get(name)
        if stack is None:
            twin = forward_twin(name)
            stack = self._stacks.get(twin) if twin else None
            if twin and stack:
                execution.attributes = (*execution.attributes, ("stack_of", twin))
        execution.stack = stack or ()

    def _load(self, source: DumpSource, name: str) -> object:
        try:
            opened = source.sibling(name)
        except DumpReadError as error:
            if name in source.list_folder(""):
                self.faults.append(error)
            return None
        try:
            return load_json(opened)
        except DumpReadError as error:
            self.faults.append(error)
            return None
        finally:
            opened.close()

    def _add_stack(self, key: str, value: object) -> None:
        if not isinstance(value, list):
            return
        if len(value) == 2 and isinstance(value[0], list) and isinstance(value[1], list):
            frames = _frames(value[1])
            for name in value[0]:
                if isinstance(name, str):
                    self._stacks[name] = frames
        else:
            self._stacks[key] = _frames(value)


def _frames(value: list[object]) -> tuple[str, ...]:
    return tuple(frame[:_LONGEST_FRAME] for frame in value[:_MOST_FRAMES] if isinstance(frame, str))


def check_tree(source: DumpSource) -> None:
    """Raise `CorruptDumpError` when a tree or stack file is none.

    Raises
    ------
    CorruptDumpError
        It is no JSON object.
    """
    if not isinstance(load_json(source), dict):
        raise CorruptDumpError("expected a JSON object", path=source.file.relative, offset=0)
