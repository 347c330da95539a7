"""Clients of model servers: OpenAI-compatible chat, and tokens in, tokens out."""
