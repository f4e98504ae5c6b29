"""Doors to a memory for other programs, each with an extra of its own. What the tools do is in `tools.py`."""
