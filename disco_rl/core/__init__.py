"""The domain: shards, plans, evidence, trajectories. No torch, verl, ray or network."""
