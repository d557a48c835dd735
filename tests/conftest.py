"""Settings for every test."""

from hypothesis import settings

# kernels compile inside the first examples: a slow one says nothing about the code
settings.register_profile("pylos", deadline=None)
settings.load_profile("pylos")
