"""verl's FSDP2 engine on the CPU."""

from __future__ import annotations

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy
from verl.utils.fsdp_utils import apply_fsdp2, fsdp2_load_full_state_dict
from verl.utils.torch_dtypes import PrecisionType
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead


class CpuEngineWithLMHead(FSDPEngineWithLMHead):
    """Stock engine except for the wrapping: no pinned memory, no offload, fp32 unless told."""

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
