"""Scans for the tests of the HTML report: as many and as different findings as models give."""

from __future__ import annotations

import random
from dataclasses import replace

from dumpscope.model import Reason, Scan, TensorStats, Verdict
from scan_samples import make_finding, overflow_scan

__all__ = ["realistic_scan"]


def realistic_scan(count: int) -> Scan:
    """Findings whose names, numbers and files are as long and as different as those of models."""
    chance = random.Random(7)
    findings = []
    names: list[str] = []
    for rank in range(1, count + 1):
        layer, kind = chance.randrange(96), chance.choice(["MatMulV2", "Add", "SoftmaxV2", "Cast"])
        name = (
            f"gradients/GPT2LMHead/transformer/h.{layer}/attn/{kind}-op{chance.randrange(10**6)}"
            f"/{chance.getrandbits(32):08x}"
        )
        finding = make_finding(rank, Verdict.ORIGIN if rank < 40 else Verdict.PROPAGATED, name)
        elements = chance.randrange(10**6, 10**8)
        nan = chance.randrange(elements)
        stats = TensorStats(
            count=elements,
            nan=nan,
            posinf=chance.randrange(1000),
            min=-chance.random() * 65504,
            max=chance.random() * 65504,
            first_bad=(chance.randrange(4096), chance.randrange(4096)),
            bad_box=((0, chance.randrange(4096)), (0, chance.randrange(4096))),
        )
        bad = replace(finding.op.tensors[1], shape=(elements // 4096, 4096), stats=stats)
        op = replace(
            finding.op,
            op_type=kind,
            tensors=(finding.op.tensors[0], finding.op.tensors[0], bad),
            timestamp=chance.randrange(10**15, 2 * 10**15),
            step=chance.randrange(50),
            device=chance.randrange(64),
            file=f"20251129120000/{chance.randrange(64)}/ge_default/11/3/{kind}."
            f"{name.replace('/', '_')}.{rank}.2.{chance.randrange(10**15, 2 * 10**15)}",
        )
        parameters = {**finding.reason.parameters, "nan": nan, "total": elements}
        names.append(name)
        parameters["producer"] = chance.choice(names[-40:])
        findings.append(
            replace(finding, op=op, deciding=2, reason=Reason("propagated", parameters))
        )
    base = overflow_scan()
    return replace(base, findings=tuple(findings), counts=replace(base.counts, findings=count))
