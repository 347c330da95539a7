"""Builds training samples and context stores; `python -m data_pipeline --help` lists the steps."""
