"""Recursive Context Augmentation: mentions in a question's paragraphs become whole pages."""
