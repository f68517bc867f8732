"""What to buy, whether it fits, how long it takes, what it costs: pure functions over data. Bytes, FLOPs, seconds."""
