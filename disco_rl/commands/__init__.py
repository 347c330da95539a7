"""The subcommands of `disco-rl`: each module has HELP, add_arguments and run."""
