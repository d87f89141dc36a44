"""One night beside the other: known findings, differences, trends."""
