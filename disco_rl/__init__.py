"""disco_rl: reinforcement learning for long-context Drivers (DISCO)."""

__version__ = "0.1.0"
