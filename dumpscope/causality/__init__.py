"""What happened in each execution, who wrote what it read, and which comes first."""
