"""Ranks: how they exchange values, which went bad by themselves, and what they share."""
