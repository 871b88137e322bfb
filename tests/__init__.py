"""Tests: ``support`` helps, ``contracts`` ask the same of every implementation, ``faults`` and ``system`` drive the whole.

The other folders mirror the package.
"""
