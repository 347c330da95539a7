"""Wikipedia pages: adapters for where they come from, and the store that answers by title."""
