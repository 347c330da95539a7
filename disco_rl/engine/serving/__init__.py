"""Serving of Worker calls: each shard read once, by servers that may fail.

Everything here keeps time by the event loop's own clock, so that a replay can drive the same code
with a virtual one.
"""
