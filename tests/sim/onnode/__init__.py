"""Files that are copied to a simulated node."""
