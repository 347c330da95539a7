"""The trajectory record: one JSON object a trajectory, versioned (design.md, Trajectory record)."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from disco_rl.core.evidence import NarrowOutput, WideOutput
from disco_rl.core.plan import NarrowAction, Plan
from disco_rl.core.sample import Sample
from disco_rl.core.trajectory import DriverCall, Stage, Trajectory, WorkerUsage

VERSION = 1


def to_record(
    trajectory: Trajectory,
    sample: Sample | None = None,
    reward: Mapping[str, Any] | None = None,
    **extra: Any,
) -> dict[str, Any]:
    """Everything a person or a plot needs, as plain JSON values.

    `sample` gives the gold side, `reward` the parts as a mapping; `extra` (step, split, seed, ...)
    stands at the top level and may not hide a field.
    """
    record: dict[str, Any] = {
        "version": VERSION,
        "question": trajectory.question,
        "context_id": trajectory.context_id,
        "gold": None
        if sample is None
        else {
            "index": sample.index,
            "answers": list(sample.answers),
            "hops": [asdict(hop) for hop in sample.hops],
        },
        "answer": trajectory.answer,
        "stop": trajectory.stop.value,
        "error": trajectory.error,
        "seconds": trajectory.seconds,
        "stages": [_stage(stage) for stage in trajectory.stages],
        "calls": [_call(call) for call in trajectory.calls],
        "workers": _workers(trajectory.workers),
        "reward": dict(reward) if reward is not None else None,
    }
    hidden = record.keys() & extra.keys()
    if hidden:
        raise ValueError(f"extra fields {sorted(hidden)} would hide the record's own")
    return record | extra


def plan_nodes(plan: Plan) -> list[dict[str, Any]]:
    """The plan in the form that the Driver writes it."""
    return [
        {
            "id": node.id,
            "op": "narrow",
            "instruction": node.instruction,
            "shards": "all" if node.shards is None else list(node.shards),
        }
        if isinstance(node, NarrowAction)
        else {
            "id": node.id,
            "op": "wide",
            "instruction": node.instruction,
            "inputs": list(node.inputs),
        }
        for node in plan.nodes
    ]


def _workers(usage: WorkerUsage) -> dict[str, Any]:
    """The ledger; of the shards only what they hold together."""
    shards = {"n_shards": len(usage.shards), "shard_tokens": sum(usage.shards.values())}
    return asdict(replace(usage, shards={})) | {"shards": shards}


def _stage(stage: Stage) -> dict[str, Any]:
    return {
        "index": stage.index,
        "plan": plan_nodes(stage.plan) if stage.plan else None,
        "outputs": [_output(output) for output in stage.pool.outputs.values()],
        "answer": stage.answer,
        "review": asdict(stage.review) if stage.review else None,
        "n_history_cut": stage.n_history_cut,
        "n_review_cut": stage.n_review_cut,
    }


def _output(output: NarrowOutput | WideOutput) -> dict[str, Any]:
    kind = "wide" if isinstance(output, WideOutput) else "narrow"
    return {"op": kind} | asdict(output)


def _call(call: DriverCall) -> dict[str, Any]:
    reply = call.generation
    return {
        "kind": call.kind.value,
        "stage": call.stage,
        "node": call.node,
        "text": reply.text,
        "finish": reply.finish,
        "prompt_tokens": len(reply.prompt_ids) or reply.n_prompt,
        "output_tokens": len(reply.output_ids) or reply.n_output,
        "error": call.error,
        "message": call.message,
        "repair": call.repair,
        "seconds": call.seconds,
    }
