"""Activities act: thin classes that are given their stores."""
