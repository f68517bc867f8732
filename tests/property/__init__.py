"""Properties that hold for every machine and every wish, and a second checker that knows nothing of the resolver."""
