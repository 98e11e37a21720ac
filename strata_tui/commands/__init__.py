"""One file a command: HELP, add_arguments(parser), run(args) -> exit code."""
