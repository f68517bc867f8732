"""One module a verb, each with `run(args) -> int`."""
