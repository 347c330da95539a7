"""The report over finished and unfinished evaluation runs: tables, plots, one page."""
