"""What lets verl train without a GPU: platform, engine, rollout server.

Nothing here acts on import. `launch` names `disco_rl.trainer.cpu.plugin` in
`VERL_USE_EXTERNAL_MODULES` when the config asks for `trainer.device=cpu`, and verl then imports
it in every process. `generator` alone needs neither verl nor Ray: `disco-rl ask`, evaluation and
the export check sample with it too.
"""
