"""Shared parts of the attention course: figures, explorers, checks, and the attention you build."""

from course_utils.checks import check, progress
from course_utils.figures import heatmap, show

__all__ = ["check", "heatmap", "progress", "show"]
