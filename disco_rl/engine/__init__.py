"""The episode: Driver, Workers, executor. Models only through `protocols`."""
