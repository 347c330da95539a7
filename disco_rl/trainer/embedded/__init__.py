"""The embedded Driver: a small Qwen3 with its own tokenizer, warm-started on demonstrations."""
