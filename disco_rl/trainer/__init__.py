"""Training with verl: the only package that imports verl and Ray.

Importing this package (or `disco_rl.trainer.cpu`) imports nothing else and changes no state of
verl; `disco_rl.trainer.launch.train` decides what a run needs from its config.
"""
