"""The embedded world: a fictional encyclopedia and multi-hop questions about it."""

from data_pipeline.world.generate import World, WorldConfig, make_world
from data_pipeline.world.questions import WorldQuestion
from data_pipeline.world.region import Region
from data_pipeline.world.relations import RELATIONS, Fact, Kind, Relation

__all__ = [
    "RELATIONS",
    "Fact",
    "Kind",
    "Region",
    "Relation",
    "World",
    "WorldConfig",
    "WorldQuestion",
    "make_world",
]
