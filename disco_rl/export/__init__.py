"""From a training checkpoint to a Hugging Face folder that anything can load."""
