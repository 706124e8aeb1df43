"""Properties are checked without a clock: this machine may be slow or shared."""

from hypothesis import settings

settings.register_profile("anima", deadline=None, max_examples=50)
settings.load_profile("anima")
