"""What Anima costs, measured on the embedded stack in one interleaved run."""
