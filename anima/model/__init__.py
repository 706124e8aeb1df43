"""The pure heart of Anima: resources, souls, bindings and wire contracts.

Nothing here performs I/O or reads a clock, so every module may be imported
inside the workflow sandbox.
"""
