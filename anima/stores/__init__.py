"""The four ports and their implementations."""
