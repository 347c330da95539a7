"""verl's FSDP2 engine on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from tensordict import TensorDict
from torch.distributed.fsdp import MixedPrecisionPolicy
from verl.utils import tensordict_utils as tu
from verl.utils.fsdp_utils import apply_fsdp2, fsdp2_load_full_state_dict
from verl.utils.torch_dtypes import PrecisionType
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl.workers.engine.utils import postprocess_batch_func

from disco_rl.trainer.cpu.micro_batches import micro_batches


class CpuEngineWithLMHead(FSDPEngineWithLMHead):
    """Stock engine except for the wrapping: no pinned memory, no offload, fp32 unless told;
    and for micro-batches of rows of like length."""

    def _build_fsdp_module(self, module: torch.nn.Module) -> torch.nn.Module:
        config = self.engine_config
        precision = config.mixed_precision or {}
        param_dtype = PrecisionType.to_dtype(precision.get("param_dtype", "fp32"))
        if param_dtype == torch.float16:
            raise ValueError("fsdp_config.mixed_precision.param_dtype: fp16 isn't trained on a CPU")
        self._autocast_dtype = param_dtype
        self.scaler = None
        # A reference model is "offloaded" by the stock engine, which pins memory; here it
        # already lives where it should.
        self._is_offload_param = False
        self._is_offload_optimizer = False
        policy = MixedPrecisionPolicy(
            param_dtype=param_dtype,
            reduce_dtype=PrecisionType.to_dtype(precision.get("reduce_dtype", "fp32")),
            cast_forward_inputs=True,
        )
        full_state = module.state_dict()
        apply_fsdp2(
            module,
            {
                "mesh": self.device_mesh,
                "mp_policy": policy,
                "offload_policy": None,
                "reshard_after_forward": config.reshard_after_forward,
            },
            config,
        )
        fsdp2_load_full_state_dict(module, full_state, self.device_mesh, None)
        return module

    def forward_backward_batch(
        self, data: TensorDict, loss_function: Callable[..., Any], forward_only: bool = False
    ) -> Any:
        """As the stock engine's, except for which rows go together. Needs dynamic batch size."""
        if not tu.get_non_tensor_data(data=data, key="use_dynamic_bsz", default=True):
            return super().forward_backward_batch(data, loss_function, forward_only)
        group = self.get_data_parallel_group()
        tokens = data["loss_mask"].sum()
        torch.distributed.all_reduce(tokens, op=torch.distributed.ReduceOp.SUM, group=group)
        tu.assign_non_tensor(
            data, sp_size=1, batch_num_tokens=tokens.item(), dp_size=self.get_data_parallel_size()
        )
        keep = tu.get_non_tensor_data(data=data, key="return_model_output", default=False)
        batches, rows = micro_batches(data, group)
        outputs = []
        for i, batch in enumerate(batches):
            last = i == len(batches) - 1
            sync = (
                nullcontext()
                if forward_only
                else self._gradient_sync_context(is_last_micro_batch=last)
            )
            with torch.set_grad_enabled(not forward_only), sync:
                loss, report = self.forward_step(
                    batch, loss_function=loss_function, forward_only=forward_only
                )
                if not forward_only:
                    loss.backward()
                    if not keep:
                        report.pop("model_output", None)
            outputs.append(report)
        return postprocess_batch_func(output_lst=outputs, indices=rows, data=data)
