"""Figures of studies and comparisons, one file each; all of them in one style."""
